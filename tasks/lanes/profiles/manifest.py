"""The control tasks of profiles, and their intervals."""

from __future__ import annotations

from tasks.lanes.manifest import PeriodicJob, TasksManifest

DELETE_OBJECTS_TASK = "control.delete_tombstoned_objects"
ISOLATE_TASK = "control.isolate_bad_blocks"
RECOVER_LETTERS_TASK = "control.recover_dead_letters"
RETENTION_TASK = "control.apply_retention"
REWRITE_TASK = "control.rewrite_masked"
SETTLE_QUEUES_TASK = "control.settle_queues"
SWEEP_ORPHANS_TASK = "control.sweep_orphans"
SWEEP_TASK = "control.sweep_leftovers"

MANIFEST = TasksManifest(
    name="profiles",
    modules=(
        "tasks.lanes.profiles.dead_letters",
        "tasks.lanes.profiles.deletion",
        "tasks.lanes.profiles.isolation",
        "tasks.lanes.profiles.retention",
        "tasks.lanes.profiles.sweeps",
    ),
    periodic_jobs=(
        PeriodicJob(name="Delete replaced objects", task=DELETE_OBJECTS_TASK, every_seconds=30),
        PeriodicJob(name="Apply retention", task=RETENTION_TASK, every_seconds=15 * 60),
        PeriodicJob(name="Rewrite deleted data", task=REWRITE_TASK, every_seconds=60),
        PeriodicJob(name="Sweep leftovers", task=SWEEP_TASK, every_seconds=10 * 60),
        PeriodicJob(name="Sweep orphans", task=SWEEP_ORPHANS_TASK, every_seconds=24 * 3600),
        PeriodicJob(name="Settle queues", task=SETTLE_QUEUES_TASK, every_seconds=15),
        PeriodicJob(name="Isolate bad blocks", task=ISOLATE_TASK, every_seconds=30),
        PeriodicJob(name="Recover dead letters", task=RECOVER_LETTERS_TASK, every_seconds=15),
    ),
)
