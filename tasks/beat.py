"""The Celery app of beat and of the control workers: ``celery -A tasks.beat beat`` and ``celery -A tasks.beat worker``.

The schedule is stored in the database and edited by operators in the admin. Beat adds entries whose names are missing
and never changes existing ones. Two beat processes are harmless, because every control task is idempotent.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, signals

from engine.settings.lanes import lane_manifests
from engine.settings.service import BrokerSettings
from tasks.app import configure
from tasks.lanes.manifest import PeriodicJob
from tasks.metrics import serve_in_control_and_beat

CONTROL_QUEUE = "control"
COUNT_LOG_TASK = "control.count_log"
PLACEMENT_TASK = "control.build_placement_rules"
PUBLISH_REVOCATIONS_TASK = "control.publish_revocations"
TRIM_TASK = "control.trim_history"
WRITE_POSITION_TASK = "control.write_log_position"
LOOP_SECONDS_MAX = 5
"""Longest time until beat applies a change of the schedule."""

_LANES = lane_manifests("tasks").values()
PERIODIC_JOBS = (
    PeriodicJob(name="Write log position", task=WRITE_POSITION_TASK, every_seconds=60),
    PeriodicJob(name="Count progress", task=COUNT_LOG_TASK, every_seconds=15),
    PeriodicJob(name="Trim history", task=TRIM_TASK, every_seconds=3600),
    PeriodicJob(name="Build placement rules", task=PLACEMENT_TASK, every_seconds=15),
    PeriodicJob(name="Publish revoked secrets", task=PUBLISH_REVOCATIONS_TASK, every_seconds=10),
    *(job for lane in _LANES for job in lane.periodic_jobs),
)


def _make_control_app() -> Celery:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webadmin.settings")
    control_app = Celery(
        "lithify-control",
        include=[
            "tasks.control.access",
            "tasks.control.placement",
            "tasks.control.progress",
            "tasks.control.history",
            *(module for lane in _LANES for module in lane.modules),
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
