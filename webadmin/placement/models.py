"""Segment writers, and the assignment of shards to them.

Times are milliseconds of the database's clock.
"""

from __future__ import annotations

from django.db import models

from engine.placement.model import SHARDS_MAX, TOKENS_DEFAULT
from webadmin.base.database.fields import ByteOrderedField

NAME_MAX = 150
ZONE_MAX = 100
STORE_ERROR_MAX = 500
ADDRESS_MAX = 250


class Instance(models.Model):
    """A segment writer, present or past. ``left_at_ms`` is set when it has left or was silent for too long."""

    class State(models.TextChoices):
        ACTIVE = "active", "active"  # accepts profiles
        LEAVING = "leaving", "leaving"  # flushes, then exits

    name = ByteOrderedField(max_length=NAME_MAX)
    zone = ByteOrderedField(max_length=ZONE_MAX, blank=True)
    address = models.CharField(max_length=ADDRESS_MAX)
    tokens = models.PositiveIntegerField(default=TOKENS_DEFAULT)
    state = models.CharField(max_length=10, choices=State, default=State.ACTIVE)
    build = models.CharField(max_length=50, blank=True)
    registered_at_ms = models.BigIntegerField()
    heartbeat_at_ms = models.BigIntegerField()
    left_at_ms = models.BigIntegerField(null=True, blank=True)
    store_error = models.CharField(max_length=STORE_ERROR_MAX, blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name"], name="placement_instance_name_unique"),
            models.CheckConstraint(condition=~models.Q(name=""), name="placement_instance_has_a_name"),
        ]
        indexes = [
            # "Which instances are present?" (every heartbeat)
            models.Index(fields=["name"], condition=models.Q(left_at_ms=None), name="placement_instance_present"),
        ]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class RingHead(models.Model):
    """The single row with the ring in force, locked by changes of the ring. ``document`` is the encoded ring."""

    version = models.BigIntegerField(default=0)
    document = models.BinaryField(default=bytes)
    changed_at_ms = models.BigIntegerField(default=0)
    # Set by an operator who expects a larger fleet: growing later would move most series once.
    shards_override = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="placement_ring_head_one_row")]

    def __str__(self) -> str:
        return f"ring {self.version}"


class RingChange(models.Model):
    """What a version of the ring changed, and why."""

    version = models.BigIntegerField()
    at_ms = models.BigIntegerField()
    reason = models.CharField(max_length=500)
    actor = models.CharField(max_length=150)
    shards = models.PositiveIntegerField()
    instance_count = models.PositiveIntegerField()
    moved_slots = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["version"], name="placement_ring_change_version_unique")]
        ordering = ["-version"]

    def __str__(self) -> str:
        return f"ring {self.version}: {self.reason}"


class Slot(models.Model):
    """The instance that hosts a shard, for the whole fleet (zone "") and for each zone, and since when."""

    zone = ByteOrderedField(max_length=ZONE_MAX, blank=True)
    shard = models.PositiveIntegerField()
    instance = ByteOrderedField(max_length=NAME_MAX)
    ring_version = models.BigIntegerField()
    moved_at_ms = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["zone", "shard"], name="placement_slot_unique"),
            models.CheckConstraint(
                condition=models.Q(shard__gte=1, shard__lte=SHARDS_MAX), name="placement_slot_of_a_shard"
            ),
        ]
        ordering = ["zone", "shard"]

    def __str__(self) -> str:
        return f"shard {self.shard} of {self.zone or 'the fleet'}: {self.instance}"


from webadmin.placement.rule_models import (  # noqa: E402
    PlacementChange,
    PlacementLimit,
    PlacementOverride,
    RuleChange,
    RulesHead,
    RulesVersion,
)

__all__ = [
    "Instance",
    "PlacementChange",
    "PlacementLimit",
    "PlacementOverride",
    "RingChange",
    "RingHead",
    "RuleChange",
    "RulesHead",
    "RulesVersion",
    "Slot",
]
