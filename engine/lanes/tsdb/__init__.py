"""The tsdb lane: compacts Prometheus blocks by time interval."""
