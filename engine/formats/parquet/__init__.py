"""Readers of Parquet files: footers, schemas, rows and times."""
