"""Operators' settings and their consequences: limits with their history, pauses, pins, split jobs, stops of quarantine.

Columns named ``…_ms`` are milliseconds of command time; ``command_index`` is the entry of the log that created the row.
Rows are history: they end, and are not deleted.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from engine.schedule.limits import SCOPE_VALUE_MAX, LimitName, ScopeKind
from engine.schedule.pauses import PauseMode
from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.database.fields import ByteOrderedField

ACTOR_MAX = 150
WHY_MAX = 500
PLACE_MAX = 400
SCOPE_KINDS = [(kind.value, kind.value) for kind in ScopeKind]


class LimitChange(models.Model):
    """A limit's value for a scope, as an operator set it; a null value removes the one that was set before.

    In force is, per limit and scope, the last row that has not expired. ``is_superseded`` rows can never be in force
    again: a later one without an end covers them.
    """

    name = ByteOrderedField(max_length=30, choices=[(name.value, name.value) for name in LimitName])
    scope_kind = models.CharField(max_length=10, choices=SCOPE_KINDS)
    scope_value = ByteOrderedField(max_length=SCOPE_VALUE_MAX, blank=True)
    value = models.BigIntegerField(null=True)
    set_at_ms = models.BigIntegerField()
    valid_until_ms = models.BigIntegerField(null=True)
    is_superseded = models.BooleanField(default=False)
    command_index = models.BigIntegerField()
    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=ACTOR_MAX)
    why = models.CharField(max_length=WHY_MAX)

    objects = ConfinedManager("scope_value", is_scoped=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(valid_until_ms=None) | Q(valid_until_ms__gt=models.F("set_at_ms")),
                name="limit_change_lasts_some_time",
            ),
        ]
        indexes = [
            # "Which limits are in force?" (poll)
            models.Index(
                fields=["scope_kind", "scope_value", "name", "-id"],
                condition=Q(is_superseded=False),
                name="limit_change_in_force",
            ),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.name} {self.value} for {self.scope_kind} {self.scope_value}".rstrip()


class Pause(models.Model):
    """A paused part of the schedule, until it is resumed or the pause expires."""

    scope_kind = models.CharField(max_length=10, choices=SCOPE_KINDS)
    scope_value = ByteOrderedField(max_length=SCOPE_VALUE_MAX, blank=True)
    mode = models.CharField(max_length=10, choices=[(mode.value, mode.value) for mode in PauseMode])
    since_ms = models.BigIntegerField()
    valid_until_ms = models.BigIntegerField(null=True)
    command_index = models.BigIntegerField()
    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=ACTOR_MAX)
    why = models.CharField(max_length=WHY_MAX)
    ended_at_ms = models.BigIntegerField(null=True)
    ended_by = models.CharField(max_length=ACTOR_MAX, blank=True)

    objects = ConfinedManager("scope_value", is_scoped=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["scope_kind", "scope_value"], condition=Q(ended_at_ms=None), name="pause_unique_while_it_lasts"
            ),
            models.CheckConstraint(condition=~Q(scope_kind=ScopeKind.JOB.value), name="pause_is_not_of_a_job"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.mode} {self.scope_kind} {self.scope_value}".rstrip()


class JobPin(models.Model):
    """A rule about who may get a job: only this worker, only builds newer than this one, or (once) not this build."""

    class Kind(models.TextChoices):
        WORKER = "worker", "only this worker"
        NEWER_THAN = "newer_than", "only newer builds than this"
        NOT_BUILD = "not_build", "not this build"  # of pins of former releases

    job = models.ForeignKey("schedule.Job", on_delete=models.CASCADE, related_name="pins", db_index=False)
    kind = models.CharField(max_length=10, choices=Kind)
    value = ByteOrderedField(max_length=100)
    command_index = models.BigIntegerField()
    actor = models.CharField(max_length=ACTOR_MAX)
    why = models.CharField(max_length=WHY_MAX)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "kind", "value"], name="job_pin_unique")]

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"


class JobSplit(models.Model):
    """``child`` has a part of the blocks that ``parent`` had; ``root`` is the job that was originally planned."""

    child = models.OneToOneField("schedule.Job", on_delete=models.CASCADE, related_name="split_from")
    parent = models.ForeignKey("schedule.Job", on_delete=models.CASCADE, related_name="split_into")
    root = models.ForeignKey("schedule.Job", on_delete=models.CASCADE, related_name="split_family")
    command_index = models.BigIntegerField()
    at_ms = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.child_id} from {self.parent_id}"


class IsolationStop(models.Model):
    """A stop of quarantine in a place, because too many recent sources could not be merged.

    It lasts until an operator decides whether they are retried or quarantined. At most one is open per place. ``at_ms``
    and ``ended_at_ms`` are command time, ``ended_wall_ms`` is the wall time of the decision.
    """

    class Decision(models.TextChoices):
        RETRY = "retry", "try them again: the store is repaired"
        QUARANTINE = "quarantine", "quarantine them: they are damaged"

    lane = ByteOrderedField(max_length=20)
    place = ByteOrderedField(max_length=PLACE_MAX, blank=True)
    at_ms = models.BigIntegerField()
    command_index = models.BigIntegerField()
    bad_sources = models.PositiveIntegerField()
    merged_sources = models.PositiveBigIntegerField()
    reason = models.CharField(max_length=WHY_MAX)
    ended_at_ms = models.BigIntegerField(null=True)
    ended_wall_ms = models.BigIntegerField(null=True)
    decision = models.CharField(max_length=10, choices=Decision, blank=True)
    ended_by = models.CharField(max_length=ACTOR_MAX, blank=True)
    why = models.CharField(max_length=WHY_MAX, blank=True)

    objects = ConfinedManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["lane", "place"], condition=Q(ended_at_ms=None), name="isolation_stop_is_open_once"
            )
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"quarantine of {self.where} is stopped: {self.reason}"

    @property
    def where(self) -> str:
        """The lane, and the place in it unless that is the whole lane."""
        return f"{self.lane} {self.place}" if self.place else self.lane
