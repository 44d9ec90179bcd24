"""Compactions of branches, decisions of the sensor, settings of repositories, and garbage collections."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from engine.lanes.catalog.plan.retention import KEEP_ALL
from engine.lanes.catalog.plan.sensor import PathLimits, SensorPolicy
from engine.schedule.model import JobState, ParkedKind
from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.database.fields import ByteOrderedField
from webadmin.lanes.catalog.column_sizes import ID_LENGTH, NAME_MAX
from webadmin.lanes.catalog.states import CompactionState
from webadmin.schedule.models import Job

REASON_MAX = 500
KEY_MAX = 1000
ACTOR_MAX = 150
_SENSOR, _PATH = SensorPolicy(), PathLimits()


class CompactionPolicy(models.Model):
    """The compaction settings of a repository; without a row the defaults apply. 0 disables a threshold.

    ``here_rows`` and ``here_bytes`` are the limits below which a node merges in its own process. Unreachable files are
    condemned when they are older than ``grace_seconds``, and deleted after the same time again, together with the rows
    of retired tokens and the runs of compactions that ended so long ago. ``retention_days`` 0 keeps the objects of all
    commits.
    """

    repository = models.OneToOneField("catalog.Repository", on_delete=models.CASCADE, related_name="compaction_policy")
    is_enabled = models.BooleanField(default=_SENSOR.is_enabled)
    tombstones = models.PositiveBigIntegerField(default=_SENSOR.tombstones)
    sealed_rows = models.PositiveBigIntegerField(default=_SENSOR.sealed_rows)
    sealed_tokens = models.PositiveIntegerField(default=_SENSOR.sealed_tokens)
    sealed_age_seconds = models.PositiveIntegerField(default=int(_SENSOR.sealed_age_s))
    wasteful_lists = models.PositiveIntegerField(default=_SENSOR.wasteful_lists)
    release_percent = models.PositiveSmallIntegerField(default=round(_SENSOR.release * 100))
    cooldown_seconds = models.PositiveIntegerField(default=int(_SENSOR.cooldown_s))
    cooldown_factor = models.PositiveIntegerField(default=int(_SENSOR.cooldown_factor))
    tokens_cap = models.PositiveIntegerField(default=_SENSOR.tokens_cap)
    running_max = models.PositiveIntegerField(default=_SENSOR.running_max)
    bytes_per_hour = models.PositiveBigIntegerField(default=64 * 10**9)
    here_rows = models.PositiveBigIntegerField(default=_PATH.rows)
    here_bytes = models.PositiveBigIntegerField(default=10**9)
    grace_seconds = models.PositiveIntegerField(default=3600)
    object_grace_seconds = models.PositiveIntegerField(default=2 * 86_400)
    retention_days = models.PositiveIntegerField(default=KEEP_ALL)

    objects = ConfinedManager("repository__tenant")

    class Meta:
        verbose_name_plural = "compaction policies"

    def __str__(self) -> str:
        return f"policy of {self.repository}"


class BranchWatch(models.Model):
    """The last decision of the sensor about a branch, and its input.

    ``held`` and ``reason`` are the decision in words; ``ready_ms`` is the end of a cooldown. ``begun_ms``, ``took_ms``
    and ``last_bytes`` describe the last compaction, ``lost_in_a_row`` counts lost races and failures since the last
    published one. ``ordered_by`` is the operator who requested a compaction.
    """

    branch = models.OneToOneField("catalog.Branch", on_delete=models.CASCADE, primary_key=True, related_name="watch")
    is_wanted = models.BooleanField(default=False)
    held = models.CharField(max_length=60, blank=True)
    reason = models.CharField(max_length=REASON_MAX, blank=True)
    severity = models.FloatField(default=0.0)
    ready_ms = models.BigIntegerField(null=True)
    decided_ms = models.BigIntegerField(default=0)
    begun_ms = models.BigIntegerField(null=True)
    took_ms = models.PositiveBigIntegerField(default=0)
    last_bytes = models.PositiveBigIntegerField(default=0)
    lost_in_a_row = models.PositiveIntegerField(default=0)
    ordered_by = models.CharField(max_length=ACTOR_MAX, blank=True)
    ordered_why = models.CharField(max_length=REASON_MAX, blank=True)

    objects = ConfinedManager("branch__repository__tenant")

    class Meta:
        verbose_name_plural = "branch watches"

    def __str__(self) -> str:
        return f"watch of {self.branch_id}"


class Compaction(models.Model):
    """A compaction of a branch, from the seal to its end; these rows are the history.

    ``base_version`` is the base version of its build. ``run_key`` is the run with the rows of its tokens while that is
    in the store. ``build_id`` is the row that records since when it may have written files. An open compaction whose
    job was parked already has ``ended_because``.
    """

    repository = models.ForeignKey(
        "catalog.Repository", on_delete=models.CASCADE, related_name="compactions", db_index=False
    )
    branch_id = models.BigIntegerField()
    branch_name = ByteOrderedField(max_length=NAME_MAX)
    job = models.OneToOneField(Job, null=True, on_delete=models.PROTECT, related_name="catalog_compaction")
    state = models.CharField(max_length=10, choices=CompactionState, default=CompactionState.OPEN)
    cause = models.CharField(max_length=REASON_MAX)
    is_ordered = models.BooleanField(default=False)
    build_id = models.BigIntegerField()
    base_version = models.JSONField(null=True)
    base = ByteOrderedField(max_length=ID_LENGTH, blank=True)
    head_metarange = ByteOrderedField(max_length=ID_LENGTH, blank=True)
    run_key = ByteOrderedField(max_length=KEY_MAX, blank=True)
    run = models.JSONField(null=True)
    token_count = models.PositiveIntegerField(default=0)
    row_count = models.PositiveBigIntegerField(default=0)
    begun_ms = models.BigIntegerField()
    finished_ms = models.BigIntegerField(null=True)
    ended_because = models.CharField(max_length=REASON_MAX, blank=True)
    metarange = ByteOrderedField(max_length=ID_LENGTH, blank=True)
    equals_head = models.BooleanField(null=True)
    rows_read = models.PositiveBigIntegerField(null=True)
    added = models.PositiveBigIntegerField(null=True)
    changed = models.PositiveBigIntegerField(null=True)
    removed = models.PositiveBigIntegerField(null=True)
    bytes_changed = models.PositiveBigIntegerField(null=True)
    bytes_written = models.PositiveBigIntegerField(null=True)

    objects = ConfinedManager("repository__tenant")

    class Meta:
        constraints = [
            # Of two sensors that start a compaction of the same branch at once, one fails here.
            models.UniqueConstraint(
                fields=["branch_id"],
                condition=Q(state=CompactionState.OPEN),
                name="catalog_compaction_one_open",
            ),
            models.CheckConstraint(
                condition=Q(state=CompactionState.OPEN, finished_ms=None)
                | (~Q(state=CompactionState.OPEN) & Q(finished_ms__isnull=False)),
                name="catalog_compaction_ends_some_time",
            ),
        ]
        indexes = [
            # The compactions of a branch.
            models.Index(fields=["branch_id", "-id"], name="catalog_compaction_of_branch"),
            # The bytes that a repository has written within the last hour.
            models.Index(fields=["repository", "finished_ms"], name="catalog_compaction_finished"),
            # The compactions whose run is still in the store.
            models.Index(fields=["id"], condition=~Q(run_key=""), name="catalog_compaction_with_run"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"compaction {self.id}"


IS_PARKED = Q(state=CompactionState.OPEN, job__state=JobState.PARKED, job__parked_kind__in=["", ParkedKind.EVICTED])
"""Condition: the job of a compaction failed too often and is parked until an operator or the sensor retries it."""


class Collection(models.Model):
    """A garbage collection in a repository and its outcome; counts of files, objects and rows.

    ``has_objects``: objects of entries were included, which reads every range.
    """

    repository = models.ForeignKey(
        "catalog.Repository", on_delete=models.CASCADE, related_name="collections", db_index=False
    )
    actor = models.CharField(max_length=ACTOR_MAX)
    begun_ms = models.BigIntegerField()
    finished_ms = models.BigIntegerField()
    has_objects = models.BooleanField(default=False)
    files_seen = models.PositiveBigIntegerField(default=0)
    files_condemned = models.PositiveBigIntegerField(default=0)
    files_spared = models.PositiveBigIntegerField(default=0)
    files_deleted = models.PositiveBigIntegerField(default=0)
    objects_seen = models.PositiveBigIntegerField(default=0)
    objects_condemned = models.PositiveBigIntegerField(default=0)
    objects_spared = models.PositiveBigIntegerField(default=0)
    objects_deleted = models.PositiveBigIntegerField(default=0)
    bytes_deleted = models.PositiveBigIntegerField(default=0)
    rows_deleted = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=REASON_MAX, blank=True)

    objects = ConfinedManager("repository__tenant")

    class Meta:
        indexes = [models.Index(fields=["repository", "-id"], name="catalog_collection_history")]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"collection {self.id}"
