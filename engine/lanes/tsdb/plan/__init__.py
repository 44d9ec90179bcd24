"""Compaction by time interval: which blocks of a tenant are merged together, into how many parts, and by whom; pure.

A *slot* is one interval of a range (10:00 to 12:00 of the range 2 h). The door is ``plan.plan_intervals``.
"""
