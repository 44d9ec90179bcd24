"""Compaction of branches: the sensor, jobs, and their ends."""
