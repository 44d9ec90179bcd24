"""Codec of the series index of a dataset."""
