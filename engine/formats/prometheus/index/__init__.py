"""Readers and writers of the index of a block: symbols, series, postings."""
