"""The catalog over HTTP, compatible with the unmodified SDKs of lakeFS; their models are the specification."""
