"""Row C14 of the sheet: how often retention runs."""

from __future__ import annotations

import pytest
from django_celery_beat.models import PeriodicTask

from tasks.beat import PERIODIC_JOBS, app
from tasks.control.schedule import OperatorScheduler
from tasks.lanes.profiles.manifest import RETENTION_TASK


@pytest.mark.row("C14")
@pytest.mark.django_db
def test_retention_runs_every_15_minutes_unless_switched_off() -> None:
    assert [job.every_seconds for job in PERIODIC_JOBS if job.task == RETENTION_TASK] == [15 * 60]
    OperatorScheduler(app=app)
    row = PeriodicTask.objects.get(task=RETENTION_TASK)
    assert (row.enabled, row.interval.every, row.interval.period) == (True, 15 * 60, "seconds")
    PeriodicTask.objects.filter(id=row.id).update(enabled=False)
    assert RETENTION_TASK not in {entry.task for entry in OperatorScheduler(app=app).all_as_schedule().values()}
