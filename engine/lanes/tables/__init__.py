"""The tables lane: compacts the Parquet files of tables along a timeline."""
