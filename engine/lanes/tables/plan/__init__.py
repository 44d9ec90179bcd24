"""Pure planning of timeline compaction: which time chunks of a data source are merged, in which tasks, and what waits.

``plan.plan_timeline`` plans a whole timeline at once. ``cycle.run_cycle`` is one cycle of the controller: it analyses
changes, maintains the queue, and returns what to store. The rules are described in
``docs/reference/timeline-compaction.md``.
"""
