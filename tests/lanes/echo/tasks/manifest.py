"""The control tasks of text files, and their intervals."""

from __future__ import annotations

from tasks.lanes.manifest import PeriodicJob, TasksManifest

ISOLATE_TASK = "control.isolate_texts"
PLAN_TASK = "control.plan_texts"

MANIFEST = TasksManifest(
    name="echo",
    modules=("tests.lanes.echo.tasks.control",),
    periodic_jobs=(
        PeriodicJob(name="Plan text files", task=PLAN_TASK, every_seconds=1),
        PeriodicJob(name="Isolate bad text files", task=ISOLATE_TASK, every_seconds=1),
    ),
)
