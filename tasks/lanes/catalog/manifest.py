"""The control tasks of catalogs, and their intervals."""

from __future__ import annotations

from tasks.lanes.manifest import PeriodicJob, TasksManifest

COLLECT_CATALOGS_TASK = "control.collect_catalogs"
SENSE_BRANCHES_TASK = "control.sense_branches"

MANIFEST = TasksManifest(
    name="catalog",
    modules=("tasks.lanes.catalog.control",),
    periodic_jobs=(
        PeriodicJob(name="Sense branches", task=SENSE_BRANCHES_TASK, every_seconds=15),
        PeriodicJob(name="Collect garbage of catalogs", task=COLLECT_CATALOGS_TASK, every_seconds=30 * 60),
    ),
)
