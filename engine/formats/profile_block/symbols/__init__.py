"""Codec of the symbols of a dataset: tables of strings, mappings, functions and locations, and stack trees."""
