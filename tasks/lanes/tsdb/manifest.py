"""The control tasks of Prometheus blocks, and their intervals."""

from __future__ import annotations

from tasks.lanes.manifest import PeriodicJob, TasksManifest

CLEAN_BUCKETS_TASK = "control.clean_buckets"
PLAN_INTERVALS_TASK = "control.plan_intervals"
SCAN_BUCKETS_TASK = "control.scan_buckets"
VERIFY_SOURCES_TASK = "control.verify_sources"
WRITE_OUTBOXES_TASK = "control.write_outboxes"

MANIFEST = TasksManifest(
    name="tsdb",
    modules=("tasks.lanes.tsdb.control",),
    periodic_jobs=(
        PeriodicJob(name="Scan buckets", task=SCAN_BUCKETS_TASK, every_seconds=60),
        PeriodicJob(name="Plan intervals", task=PLAN_INTERVALS_TASK, every_seconds=5),
        PeriodicJob(name="Write outboxes", task=WRITE_OUTBOXES_TASK, every_seconds=5),
        PeriodicJob(name="Verify sources of failing jobs", task=VERIFY_SOURCES_TASK, every_seconds=30),
        PeriodicJob(name="Clean buckets", task=CLEAN_BUCKETS_TASK, every_seconds=15 * 60),
    ),
)
