"""Timeline compaction: which time chunks of a data source are merged, in which tasks, and what waits; pure.

``plan.plan_timeline`` plans a whole timeline at once; ``cycle.run_cycle`` is one turn of the controller, which looks at
what changed, keeps the queue, and says what is to be written down. The rules are those of the timeline sheet.
"""
