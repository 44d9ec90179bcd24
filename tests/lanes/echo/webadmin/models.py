"""Registered text files and merged ones."""

from __future__ import annotations

from django.db import models

from engine.protocol.wire import KEY_MAX
from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.database.fields import ByteOrderedField
from webadmin.schedule.models import Job

FOLDER_MAX = 100
REASON_MAX = 500


class TextState(models.TextChoices):
    LIVE = "live", "live"
    OWNED = "owned", "owned by a job"
    SUPERSEDED = "superseded", "replaced by a merge"
    QUARANTINED = "quarantined", "cannot be read"


class TextFile(models.Model):
    """A text file of a folder. Readers see those that are live or owned, by ``position``.

    An owned file has an open job. A result has the position of its first source. ``created_ms`` is wall time.
    """

    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX)
    folder = ByteOrderedField(max_length=FOLDER_MAX)
    key = ByteOrderedField(max_length=KEY_MAX)
    size_bytes = models.PositiveBigIntegerField()
    position = models.PositiveBigIntegerField()
    state = models.CharField(max_length=11, choices=TextState, default=TextState.LIVE)
    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="echo_texts")
    reason = models.CharField(max_length=REASON_MAX, blank=True)
    error_class = models.CharField(max_length=100, blank=True)
    created_ms = models.BigIntegerField()
    quarantined_ms = models.BigIntegerField(null=True)

    objects = ConfinedManager("tenant")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key"], name="echo_text_key_unique")]
        indexes = [models.Index(fields=["state", "tenant", "folder", "position"], name="echo_text_in_order")]
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.key

    @property
    def place(self) -> str:
        """Return tenant and folder."""
        return f"{self.tenant}/{self.folder}"
