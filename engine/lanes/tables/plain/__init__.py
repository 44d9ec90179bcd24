"""Tables that are plain folders of Parquet files: discovery of files, and the manifest for readers."""
