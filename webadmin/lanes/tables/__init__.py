"""Tables of plain Parquet files, compacted by chunks of their timeline."""
