"""Merges of the files of a folder into fewer, sorted ones, optionally rolled up."""
