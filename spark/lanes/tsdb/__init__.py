"""Prometheus blocks on Spark."""
