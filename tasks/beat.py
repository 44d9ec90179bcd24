"""The Celery app of beat and of the control workers: ``celery -A tasks.beat beat`` and ``celery -A tasks.beat worker``.

The schedule is stored in the database and edited by operators in the admin. Beat adds entries whose names are missing
and never changes existing ones. Two beat processes are harmless, because every control task is idempotent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from celery import Celery, signals

from engine.settings.service import BrokerSettings
from tasks.app import configure
from tasks.metrics import serve_in_control_and_beat

CONTROL_QUEUE = "control"
DELETE_OBJECTS_TASK = "control.delete_tombstoned_objects"
CLEAN_BUCKETS_TASK = "control.clean_buckets"
CLEAN_TABLES_TASK = "control.clean_tables"
COLLECT_CATALOGS_TASK = "control.collect_catalogs"
COUNT_LOG_TASK = "control.count_log"
ISOLATE_TASK = "control.isolate_bad_blocks"
PLAN_INTERVALS_TASK = "control.plan_intervals"
PLAN_TABLES_TASK = "control.plan_tables"
PLACEMENT_TASK = "control.build_placement_rules"
PUBLISH_REVOCATIONS_TASK = "control.publish_revocations"
PUBLISH_TABLES_TASK = "control.publish_tables"
RECOVER_LETTERS_TASK = "control.recover_dead_letters"
RETENTION_TASK = "control.apply_retention"
REWRITE_TASK = "control.rewrite_masked"
SCAN_BUCKETS_TASK = "control.scan_buckets"
SENSE_BRANCHES_TASK = "control.sense_branches"
SETTLE_TABLES_TASK = "control.settle_table_failures"
SWEEP_ORPHANS_TASK = "control.sweep_orphans"
SETTLE_QUEUES_TASK = "control.settle_queues"
SWEEP_TASK = "control.sweep_leftovers"
TRIM_TASK = "control.trim_history"
VERIFY_SOURCES_TASK = "control.verify_sources"
WRITE_OUTBOXES_TASK = "control.write_outboxes"
WRITE_POSITION_TASK = "control.write_log_position"
LOOP_SECONDS_MAX = 5
"""Longest time until beat applies a change of the schedule."""
EXPIRE_SECONDS_MIN = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicJob:
    """A control task of a new installation, and its interval."""

    name: str
    task: str
    every_seconds: int

    @property
    def expire_seconds(self) -> int:
        """Age at which a task that no worker has started is dropped; the next run covers it."""
        return max(self.every_seconds, EXPIRE_SECONDS_MIN)


PERIODIC_JOBS = (
    PeriodicJob(name="Delete replaced objects", task=DELETE_OBJECTS_TASK, every_seconds=30),
    PeriodicJob(name="Write log position", task=WRITE_POSITION_TASK, every_seconds=60),
    PeriodicJob(name="Count progress", task=COUNT_LOG_TASK, every_seconds=15),
    PeriodicJob(name="Apply retention", task=RETENTION_TASK, every_seconds=15 * 60),
    PeriodicJob(name="Rewrite deleted data", task=REWRITE_TASK, every_seconds=60),
    PeriodicJob(name="Sweep leftovers", task=SWEEP_TASK, every_seconds=10 * 60),
    PeriodicJob(name="Sweep orphans", task=SWEEP_ORPHANS_TASK, every_seconds=24 * 3600),
    PeriodicJob(name="Trim history", task=TRIM_TASK, every_seconds=3600),
    PeriodicJob(name="Settle queues", task=SETTLE_QUEUES_TASK, every_seconds=15),
    PeriodicJob(name="Isolate bad blocks", task=ISOLATE_TASK, every_seconds=30),
    PeriodicJob(name="Recover dead letters", task=RECOVER_LETTERS_TASK, every_seconds=15),
    PeriodicJob(name="Build placement rules", task=PLACEMENT_TASK, every_seconds=15),
    PeriodicJob(name="Scan buckets", task=SCAN_BUCKETS_TASK, every_seconds=60),
    PeriodicJob(name="Plan intervals", task=PLAN_INTERVALS_TASK, every_seconds=5),
    PeriodicJob(name="Write outboxes", task=WRITE_OUTBOXES_TASK, every_seconds=5),
    PeriodicJob(name="Verify sources of failing jobs", task=VERIFY_SOURCES_TASK, every_seconds=30),
    PeriodicJob(name="Clean buckets", task=CLEAN_BUCKETS_TASK, every_seconds=15 * 60),
    PeriodicJob(name="Plan tables", task=PLAN_TABLES_TASK, every_seconds=5),
    PeriodicJob(name="Publish tables", task=PUBLISH_TABLES_TASK, every_seconds=5),
    PeriodicJob(name="Settle failures of tables", task=SETTLE_TABLES_TASK, every_seconds=30),
    PeriodicJob(name="Clean tables", task=CLEAN_TABLES_TASK, every_seconds=5 * 60),
    PeriodicJob(name="Publish revoked secrets", task=PUBLISH_REVOCATIONS_TASK, every_seconds=10),
    PeriodicJob(name="Sense branches", task=SENSE_BRANCHES_TASK, every_seconds=15),
    PeriodicJob(name="Collect garbage of catalogs", task=COLLECT_CATALOGS_TASK, every_seconds=30 * 60),
)


def _make_control_app() -> Celery:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webadmin.settings")
    control_app = Celery(
        "lithify-control",
        include=[
            "tasks.control.access",
            "tasks.control.catalog",
            "tasks.control.dead_letters",
            "tasks.control.deletion",
            "tasks.control.tsdb",
            "tasks.control.isolation",
            "tasks.control.placement",
            "tasks.control.progress",
            "tasks.control.retention",
            "tasks.control.sweeps",
            "tasks.control.tables",
        ],
    )
    configure(control_app, BrokerSettings.read().BROKER_URL)
    control_app.conf.update(
        task_default_queue=CONTROL_QUEUE,
        worker_pool="threads",
        worker_concurrency=2,
        beat_scheduler="tasks.control.schedule:OperatorScheduler",
        beat_max_loop_interval=LOOP_SECONDS_MAX,
    )
    return control_app


def _prepare_database(**_: Any) -> None:
    # Needs Django's settings, which Celery has loaded by now.
    from webadmin.base.database.deadlines import ProcessRole, limit_statements
    from webadmin.schedule.history_check import check_history

    limit_statements(ProcessRole.CONTROL)
    check_history()


app = _make_control_app()
serve_in_control_and_beat()
signals.worker_init.connect(_prepare_database, weak=False)  # beat: tasks/control/schedule.py


def missing_jobs(known_names: set[str]) -> tuple[PeriodicJob, ...]:
    """Return the periodic jobs that are not in the schedule of this installation."""
    return tuple(job for job in PERIODIC_JOBS if job.name not in known_names)
