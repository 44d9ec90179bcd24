"""Parquet files of tables are compacted along a timeline."""
