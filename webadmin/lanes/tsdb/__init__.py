"""Prometheus blocks in buckets of Cortex or Thanos: what is known of them, and their lane on the one schedule."""
