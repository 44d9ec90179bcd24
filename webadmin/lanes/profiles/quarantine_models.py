"""Blocks that are excluded from merging because they cannot be read."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from webadmin.base.access.confinement import ConfinedManager
from webadmin.schedule.operation_models import ACTOR_MAX, WHY_MAX


class Quarantine(models.Model):
    """A block that cannot be merged, with the details of its damage. Its own parked job owns it until release."""

    class Cause(models.TextChoices):
        DAMAGED = "damaged", "damaged"  # it failed alone, while the same build merged other blocks of its kind
        MISSING = "missing", "missing"  # the store has no object with its key

    block = models.ForeignKey("profiles.Block", on_delete=models.CASCADE, related_name="quarantines", db_index=False)
    job = models.ForeignKey("schedule.Job", on_delete=models.CASCADE, related_name="quarantines")
    cause = models.CharField(max_length=10, choices=Cause)
    error_class = models.CharField(max_length=100)
    message = models.TextField(blank=True)
    object = models.CharField(max_length=1024, blank=True)
    section = models.CharField(max_length=100, blank=True)
    offset = models.BigIntegerField(default=-1)
    build = models.CharField(max_length=100, blank=True)
    attempts = models.PositiveIntegerField()
    at_ms = models.BigIntegerField()
    command_index = models.BigIntegerField()
    released_at_ms = models.BigIntegerField(null=True)
    released_by = models.CharField(max_length=ACTOR_MAX, blank=True)
    release_why = models.CharField(max_length=WHY_MAX, blank=True)

    objects = ConfinedManager("block__tenant__name")

    class Meta:
        verbose_name_plural = "quarantine"
        constraints = [
            models.UniqueConstraint(
                fields=["block"], condition=Q(released_at_ms=None), name="quarantine_holds_a_block_once"
            )
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"block {self.block_id}: {self.error_class}"
