"""The control tasks of tables, and their intervals."""

from __future__ import annotations

from tasks.lanes.manifest import PeriodicJob, TasksManifest

CLEAN_TABLES_TASK = "control.clean_tables"
PLAN_TABLES_TASK = "control.plan_tables"
PUBLISH_TABLES_TASK = "control.publish_tables"
SETTLE_TABLES_TASK = "control.settle_table_failures"

MANIFEST = TasksManifest(
    name="tables",
    modules=("tasks.lanes.tables.control",),
    periodic_jobs=(
        PeriodicJob(name="Plan tables", task=PLAN_TABLES_TASK, every_seconds=5),
        PeriodicJob(name="Publish tables", task=PUBLISH_TABLES_TASK, every_seconds=5),
        PeriodicJob(name="Settle failures of tables", task=SETTLE_TABLES_TASK, every_seconds=30),
        PeriodicJob(name="Clean tables", task=CLEAN_TABLES_TASK, every_seconds=5 * 60),
    ),
)
