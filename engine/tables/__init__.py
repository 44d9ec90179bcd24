"""Parquet files on a timeline: reading and checking them, merging them, and the manifest that readers follow."""
