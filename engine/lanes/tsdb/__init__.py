"""Prometheus blocks are compacted by time interval."""
