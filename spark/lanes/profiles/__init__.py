"""Profiles on Spark."""
