"""Prometheus TSDB blocks: index, chunk files, tombstones and meta.json, read and written."""
