"""Beat's scheduler: the operator's schedule in the database, completed by what a new installation should do."""

from __future__ import annotations

from typing import Any

from django_celery_beat.models import IntervalSchedule, PeriodicTask
from django_celery_beat.schedulers import DatabaseScheduler

from tasks.beat import missing_jobs
from webadmin.base.database.deadlines import ProcessRole, limit_statements


class KeptScheduler(DatabaseScheduler):
    """The usual one would overwrite the operator's changes with the configuration at every start."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        limit_statements(ProcessRole.CONTROL)
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Add periodic jobs that are not there yet, by name."""
        for job in missing_jobs(set(PeriodicTask.objects.values_list("name", flat=True))):
            interval, _ = IntervalSchedule.objects.get_or_create(
                every=job.every_seconds, period=IntervalSchedule.SECONDS
            )
            PeriodicTask.objects.get_or_create(
                name=job.name,
                defaults={"task": job.task, "interval": interval, "expire_seconds": job.expire_seconds},
            )
