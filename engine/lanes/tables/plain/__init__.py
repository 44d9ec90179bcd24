"""Tables that are plain folders of Parquet files: what is in them, and the manifest for readers."""
