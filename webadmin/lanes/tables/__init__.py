"""Tables of plain Parquet files, compacted chunk by chunk of their timeline."""
