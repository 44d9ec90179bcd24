"""The catalog over HTTP, as the unmodified SDKs of lakeFS ask for it; their models are the specification."""
