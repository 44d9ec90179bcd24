"""One module per kind of merge: `run(spark, specs, store_url, …)`."""
