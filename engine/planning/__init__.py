"""Planners: a snapshot goes in, job specifications come out; all pure."""
