"""Beat's schedule: completed at every start, never overwritten."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django_celery_beat.models import PeriodicTask

from tasks.beat import PERIODIC_JOBS, app, missing_jobs
from tasks.control.schedule import KeptScheduler


@pytest.mark.django_db
def test_a_new_installation_gets_every_periodic_job() -> None:
    KeptScheduler(app=app)
    found = PeriodicTask.objects.values_list("name", "task", "interval__every", "interval__period", "enabled")
    assert set(found) == {(job.name, job.task, job.every_seconds, "seconds", True) for job in PERIODIC_JOBS}


@pytest.mark.django_db
def test_periodic_tasks_expire_before_they_pile_up() -> None:
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


def test_beat_and_control_never_import_pyspark() -> None:
    program = "import sys, tasks.beat as b; b.app.loader.import_default_modules(); sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
