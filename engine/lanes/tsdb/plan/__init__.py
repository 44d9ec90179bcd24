"""Pure planning of compaction by time interval: which blocks are merged, into how many partitions, and by which worker.

A *slot* is one interval of a range (10:00 to 12:00 of the range 2 h). The entry point is ``plan.plan_intervals``.
"""
