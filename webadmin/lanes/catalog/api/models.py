"""Imports: one row each, kept for some days after its end."""

from __future__ import annotations

from django.db import models

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.database.fields import ByteOrderedField
from webadmin.lanes.catalog.column_sizes import ID_LENGTH, NAME_MAX
from webadmin.lanes.catalog.models import Repository

ERROR_MAX = 2_000


class ImportState(models.TextChoices):
    """State of an import."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class ImportRun(models.Model):
    """An import of prefixes and objects into a branch, run by the web process that received the request.

    ``heartbeat_ms`` is the last heartbeat of that process; if it has expired, the process died and nothing was
    published.
    """

    repository = models.ForeignKey(Repository, on_delete=models.CASCADE, related_name="+", db_index=False)
    branch = ByteOrderedField(max_length=NAME_MAX)
    name = ByteOrderedField(max_length=32)
    state = models.CharField(max_length=10, choices=ImportState, default=ImportState.RUNNING)
    is_cancelled = models.BooleanField(default=False)
    objects_taken = models.PositiveBigIntegerField(default=0)
    begun_ms = models.BigIntegerField()
    heartbeat_ms = models.BigIntegerField()
    commit_id = ByteOrderedField(max_length=ID_LENGTH, blank=True, default="")
    error = models.CharField(max_length=ERROR_MAX, blank=True, default="")

    objects = ConfinedManager("repository__tenant")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["repository", "name"], name="catalog_import_name_unique")]
        indexes = [models.Index(fields=["heartbeat_ms"], name="catalog_import_heard_of")]
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name
