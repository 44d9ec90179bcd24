"""Counts from the command log: flows per minute, totals since the beginning, and the position of counting.

Times are unix milliseconds of wall time, as in the log: rates are compared with wall clocks, and command time may stop.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from engine.schedule.model import JobState
from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.database.fields import ByteOrderedField
from webadmin.schedule.models import LANE_MAX, Job, SingleRow


class FlowMinute(models.Model):
    """Arrivals and departures of one tenant, shard and level in one minute. ``tenant`` "" is for segments.

    Merges are stored under their lane; blocks that were dropped unmerged under ``log_counts.DROPPED_LANE``, without
    runs.
    """

    minute_ms = models.BigIntegerField()
    lane = ByteOrderedField(max_length=LANE_MAX)
    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX, blank=True)
    shard = models.PositiveBigIntegerField()
    level = models.PositiveSmallIntegerField()
    arrived_blocks = models.PositiveBigIntegerField(default=0)
    arrived_bytes = models.PositiveBigIntegerField(default=0)
    drained_blocks = models.PositiveBigIntegerField(default=0)
    drained_bytes = models.PositiveBigIntegerField(default=0)
    completed_jobs = models.PositiveBigIntegerField(default=0)
    run_ms = models.PositiveBigIntegerField(default=0, help_text="Time of the runs that completed, command time")

    objects = ConfinedManager("tenant")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["minute_ms", "lane", "tenant", "shard", "level"], name="flow_minute_unique")
        ]

    def __str__(self) -> str:
        return f"{self.lane} {self.tenant or 'segments'} shard {self.shard} level {self.level} at {self.minute_ms}"


class FlowTotal(models.Model):
    """The number of events on one lane and level since counting began; it only grows."""

    lane = ByteOrderedField(max_length=LANE_MAX)
    level = models.PositiveSmallIntegerField()
    name = ByteOrderedField(max_length=40)
    count = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["lane", "level", "name"], name="flow_total_unique")]

    def __str__(self) -> str:
        return f"{self.lane} level {self.level} {self.name}: {self.count}"


class CountingMark(SingleRow):
    """The position of counting in the log. ``gaps`` are missing indexes below it, each with when it was missed.

    ``stalled_since_ms`` is since when there is due work while nothing was completed (null: no work).
    """

    counted_index = models.BigIntegerField(default=0)
    gaps = models.JSONField(default=dict)
    counting_since_ms = models.BigIntegerField(default=0)
    counted_at_ms = models.BigIntegerField(default=0)
    last_completed_ms = models.BigIntegerField(null=True)
    stalled_since_ms = models.BigIntegerField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="counting_mark_is_one_row")]

    def __str__(self) -> str:
        return f"counted up to {self.counted_index}"


class ParkedJobs(ConfinedManager["ParkedJob"]):
    """The jobs that are not on the schedule."""

    def get_queryset(self) -> models.QuerySet[ParkedJob]:
        return super().get_queryset().filter(state=JobState.PARKED)


class ParkedJob(Job):
    """A parked job, a proxy for its own page in the admin."""

    objects: ClassVar[ParkedJobs] = ParkedJobs("tenant")

    class Meta:
        proxy = True
        verbose_name = "parked job"
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name
