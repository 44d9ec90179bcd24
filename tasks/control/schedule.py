"""Scheduler of beat: the schedule in the database, with missing default entries added."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from celery.utils.time import maybe_make_aware
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

from tasks.beat import missing_jobs
from webadmin.base.database.deadlines import ProcessRole, limit_statements


class KeptEntry(ModelEntry):
    """A periodic task. One whose last run is in the future, because the wall clock was set back, counts as run now;
    otherwise it would not run until that time."""

    last_run_at: datetime

    def is_due(self) -> Any:
        self.last_run_at = min(maybe_make_aware(self.last_run_at), self.default_now())
        return super().is_due()


class OperatorScheduler(DatabaseScheduler):
    """Keeps changes by operators; the base class would overwrite them with the configuration at every start."""

    Entry = KeptEntry
    _ticked_at: datetime | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        limit_statements(ProcessRole.CONTROL)
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Add the periodic jobs whose names are missing."""
        for job in missing_jobs(set(PeriodicTask.objects.values_list("name", flat=True))):
            interval, _ = IntervalSchedule.objects.get_or_create(
                every=job.every_seconds, period=IntervalSchedule.SECONDS
            )
            PeriodicTask.objects.get_or_create(
                name=job.name,
                defaults={"task": job.task, "interval": interval, "expire_seconds": job.expire_seconds},
            )

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due. After the wall clock was set back the schedule is read again: the times in the heap are
        in the future."""
        now = self.app.now()
        if self._ticked_at is not None and now < self._ticked_at:
            self._initial_read, self._heap = True, None
        self._ticked_at = now
        return float(super().tick(*args, **kwargs))
