"""Dead letters: metadata that could not be registered and is stored beside its object."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.database.fields import ByteOrderedField, UlidField

LETTER_KEY_MAX = 1024
REASON_MAX = 500
CODE_MAX = 50


class LetterState(models.TextChoices):
    """State of a dead letter."""

    WAITING = "waiting", "waiting"  # the object exists and every sweep retries it
    RECOVERED = "recovered", "recovered"  # its block is in the index, the letter's object is deleted
    DISCARDED = "discarded", "discarded"  # an operator discarded it, with a reason
    SWEPT = "swept", "swept"  # no letter: the sweep is deleting the block object that a letter of this key would name


class DeadLetter(models.Model):
    """An object under ``dlq/`` as found by the sweeps. Times are wall-clock time of the database, in milliseconds.

    ``code`` and ``reason`` are the result of the last failed attempt to recover it.
    """

    key = ByteOrderedField(max_length=LETTER_KEY_MAX)
    shard = models.PositiveBigIntegerField()
    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX, blank=True, help_text="Empty for a segment")
    ulid = UlidField()
    size_bytes = models.PositiveBigIntegerField()
    written_at_ms = models.BigIntegerField(help_text="When the letter was stored")
    state = models.CharField(max_length=10, choices=LetterState, default=LetterState.WAITING)
    attempts = models.PositiveIntegerField(default=0)
    first_attempt_ms = models.BigIntegerField()
    last_attempt_ms = models.BigIntegerField()
    code = models.CharField(max_length=CODE_MAX, blank=True)
    reason = models.CharField(max_length=REASON_MAX, blank=True)

    objects = ConfinedManager("tenant")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key"], name="dead_letter_key_unique")]
        indexes = [
            # Waiting letters, the oldest first (admin, health).
            models.Index(fields=["ulid"], condition=Q(state=LetterState.WAITING), name="dead_letter_waiting"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.key
