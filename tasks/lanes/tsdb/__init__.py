"""Control tasks of the lane of Prometheus blocks."""
