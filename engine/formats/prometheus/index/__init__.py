"""The index file: symbols, series, postings."""
