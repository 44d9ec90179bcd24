"""Beat's schedule: completed at every start, never overwritten."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import signals
from celery.schedules import schedule
from django.utils import timezone
from django_celery_beat import schedulers
from django_celery_beat.models import PeriodicTask

from engine.storage import open_store
from tasks.beat import PERIODIC_JOBS, WRITE_POSITION_TASK, app, missing_jobs
from tasks.control.schedule import KeptEntry, OperatorScheduler
from webadmin.base.database import deadlines
from webadmin.schedule.log_position import LogPosition
from webadmin.schedule.models import EPOCH_MAX, AheadPosition


@pytest.mark.django_db
def test_a_new_installation_gets_every_periodic_job() -> None:
    OperatorScheduler(app=app)
    found = PeriodicTask.objects.values_list("name", "task", "interval__every", "interval__period", "enabled")
    assert set(found) == {(job.name, job.task, job.every_seconds, "seconds", True) for job in PERIODIC_JOBS}


@pytest.mark.django_db
def test_periodic_tasks_expire_before_they_pile_up() -> None:
    OperatorScheduler(app=app)
    times = PeriodicTask.objects.values_list("interval__every", "expire_seconds")
    assert all(every <= expire <= max(every, 30) for every, expire in times)


@pytest.mark.django_db
def test_a_restart_of_beat_keeps_what_the_operator_changed() -> None:
    OperatorScheduler(app=app)
    PeriodicTask.objects.update(enabled=False, description="too much load on Mondays")
    OperatorScheduler(app=app)
    kept = PeriodicTask.objects.values_list("enabled", "description")
    assert list(kept) == [(False, "too much load on Mondays")] * len(PERIODIC_JOBS)


@pytest.fixture
def one_connection(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    """The test's transaction lives in the connection that the scheduler would close."""
    monkeypatch.setattr(schedulers, "close_old_connections", lambda: None)
    monkeypatch.setattr(schedulers.transaction, "commit", lambda: None)


@pytest.mark.usefixtures("one_connection")
def test_a_task_that_ran_in_the_future_is_due_after_its_interval() -> None:
    OperatorScheduler(app=app)
    PeriodicTask.objects.update(last_run_at=timezone.now() + timedelta(days=1))
    waits = {name: entry.is_due().next for name, entry in OperatorScheduler(app=app).schedule.items()}
    assert {job.name: pytest.approx(job.every_seconds, abs=1) for job in PERIODIC_JOBS} == waits


@pytest.mark.usefixtures("one_connection")
def test_tasks_go_on_when_the_wall_clock_is_set_back_by_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [datetime.now(UTC)]  # It starts at the time of the rows of the database, and then moves only as set here.
    for owner, name in ((app, "now"), (schedule, "now"), (KeptEntry, "default_now"), (KeptEntry, "_default_now")):
        monkeypatch.setattr(owner, name, lambda *_: clock[0])
    sent: list[str] = []
    monkeypatch.setattr(OperatorScheduler, "producer", None)  # it would wait for a broker
    monkeypatch.setattr(OperatorScheduler, "apply_entry", lambda _, entry, **__: sent.append(entry.name))
    beat = OperatorScheduler(app=app)

    def sent_within(seconds: int) -> set[str]:
        sent.clear()
        for _ in range(seconds):
            clock[0] += timedelta(seconds=1)
            while beat.tick() == 0:
                pass
        return set(sent)

    often = {job.name for job in PERIODIC_JOBS if job.every_seconds <= 60}
    assert sent_within(62) == often
    clock[0] -= timedelta(days=1)
    assert sent_within(62) == often


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
