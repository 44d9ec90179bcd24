"""Prometheus blocks in Cortex and Thanos buckets: the record of blocks, and their lane of the schedule."""
