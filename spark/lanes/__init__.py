"""One package per lane: its merge on Spark, and a manifest."""
