"""Beat's schedule: completed at every start, never overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from celery import signals
from django_celery_beat.models import PeriodicTask

from engine.storage import open_store
from tasks.beat import PERIODIC_JOBS, WRITE_POSITION_TASK, app, missing_jobs
from tasks.control.schedule import KeptScheduler
from webadmin.base.database import deadlines
from webadmin.schedule.log_position import LogPosition
from webadmin.schedule.models import EPOCH_MAX, AheadPosition


@pytest.mark.django_db
def test_a_new_installation_gets_every_periodic_job() -> None:
    KeptScheduler(app=app)
    found = PeriodicTask.objects.values_list("name", "task", "interval__every", "interval__period", "enabled")
    assert set(found) == {(job.name, job.task, job.every_seconds, "seconds", True) for job in PERIODIC_JOBS}


@pytest.mark.django_db
def test_tasks_that_nobody_takes_do_not_pile_up() -> None:
    KeptScheduler(app=app)
    times = PeriodicTask.objects.values_list("interval__every", "expire_seconds")
    assert all(every <= expire <= max(every, 30) for every, expire in times)


@pytest.mark.django_db
def test_a_restart_of_beat_keeps_what_the_operator_changed() -> None:
    KeptScheduler(app=app)
    PeriodicTask.objects.update(enabled=False, description="too much load on Mondays")
    KeptScheduler(app=app)
    kept = PeriodicTask.objects.values_list("enabled", "description")
    assert list(kept) == [(False, "too much load on Mondays")] * len(PERIODIC_JOBS)


def test_only_jobs_that_are_not_there_are_missing() -> None:
    assert missing_jobs(set()) == PERIODIC_JOBS
    assert missing_jobs({job.name for job in PERIODIC_JOBS}) == ()


def test_every_periodic_job_is_a_task_of_the_control_app() -> None:
    app.loader.import_default_modules()
    assert {job.task for job in PERIODIC_JOBS} <= set(app.tasks)


@pytest.mark.django_db(transaction=True)
def test_a_control_worker_compares_the_logs_position_before_its_first_task(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    ahead = LogPosition(epoch="e" * EPOCH_MAX, command_index=77, entry="0" * 32, written_at_ms=1)
    open_store(settings.OBJECT_STORE_URL).put(ahead.key, ahead.encode())
    monkeypatch.setattr(deadlines, "limit_statements", lambda role: None)  # it would last beyond this test
    [prepare] = [one for _, one in signals.worker_init.receivers if one.__module__ == "tasks.beat"]
    prepare(sender=None)
    assert AheadPosition.objects.get().command_index == 77


def test_the_position_of_the_log_is_written_every_minute() -> None:
    assert {job.every_seconds for job in PERIODIC_JOBS if job.task == WRITE_POSITION_TASK} == {60}


def test_beat_and_control_never_import_pyspark() -> None:
    program = "import sys, tasks.beat as b; b.app.loader.import_default_modules(); sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
