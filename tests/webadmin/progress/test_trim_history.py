"""History does not grow for ever, and nothing that still decides goes with it."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from tasks.beat import PERIODIC_JOBS, TRIM_TASK
from tasks.control.history import trim_history as trim_task
from tests.webadmin.service import REASON, Service, check_invariants
from webadmin.progress.services import count_log
from webadmin.progress.services.trim_history import trim_history
from webadmin.schedule.models import Attempt, Command, Job

DAY_MS = 24 * 3600 * 1000


def worked(service: Service) -> tuple[Any, Any]:
    """Complete one job and fail another one; return the specifications of both, a hundred days later."""
    service.add_segments(40)
    worker = service.worker()
    failed, done = worker.take(2)
    worker.poll(worker.success(done.job), worker.released(failed.job, REASON), capacity=0)
    Command.objects.update(wall_time=F("wall_time") - timedelta(days=100))
    Attempt.objects.update(ended_at_ms=F("ended_at_ms") - 100 * DAY_MS)
    return done, failed


def test_what_is_old_and_counted_goes_but_the_last_entry_and_jobs_under_way(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[trim_history.__module__], "ROWS_AT_ONCE", 1)  # what stays is walked over
    done, failed = worked(service)
    last = Command.objects.order_by("index").last()
    assert trim_history(keep_days=90).commands == 0, "nobody has counted the log"
    count_log()
    assert trim_history(keep_days=101).commands == trim_history(keep_days=0).commands == 0
    report = trim_history(keep_days=90)
    assert (report.commands, list(Command.objects.values_list("index", flat=True))) == (2, [last.index])
    assert list(Attempt.objects.values_list("job__name", flat=True)) == [failed.job]
    assert Job.objects.filter(name=done.job).exists(), "its blocks name it"
    check_invariants()
    assert trim_history(keep_days=90).commands == 0


def test_the_schedule_continues_with_greater_indexes_after_a_trim(service: Service) -> None:
    _, failed = worked(service)
    count_log()
    last = Command.objects.order_by("index").last().index
    trim_history(keep_days=90)
    [again] = service.worker().take()
    assert (again.job, again.fence > last) == (failed.job, True)


def test_a_control_task_does_it_with_the_setting(real_service: Service, settings: Any) -> None:
    settings.HISTORY_DAYS = 90
    worked(real_service)
    count_log()
    trim_task()
    assert Command.objects.count() == 1
    assert TRIM_TASK in {job.task for job in PERIODIC_JOBS}
