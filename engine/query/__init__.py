"""Queries on stored profiles: selection of datasets and rows, and aggregation of their stacks and values."""
