"""The profile table of a dataset: Parquet pages with rows of samples."""
