"""Reader and writer of the profile table of a dataset, a Parquet file."""
