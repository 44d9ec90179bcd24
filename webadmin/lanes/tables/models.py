"""Models of data sources, policies, registrations, segments, chunks, chunk actions and bad files.

Columns named ``…_ms`` are milliseconds: times of the data (ends exclusive) and wall time; command time where the
comment says so. Sizes are bytes. The terms are defined in ``engine.lanes.tables.plan``.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.database.fields import ByteOrderedField
from webadmin.lanes.tables.column_sizes import (
    COLUMN_MAX,
    DIGEST_MAX,
    NAME_MAX,
    PATH_MAX,
    REASON_MAX,
    URL_MAX,
    VERSION_MAX,
    ZONE_MAX,
)
from webadmin.lanes.tables.states import (
    ChunkOverrideKind,
    ChunkStatus,
    RegistrationMode,
    SegmentState,
)
from webadmin.schedule.models import Job

MB = 1_000_000
DAY_S = 86_400
ALIGN = (("never", "never"), ("touched", "touched"), ("always", "always"))


class DataSource(models.Model):
    """A table of one tenant: Parquet files below one URL with one timeline.

    ``columns`` is the table's schema (name and type), and ``arrow_schema`` the same in Arrow's serialised form
    (base64); ``partition_columns`` are those that exist only in folder names. ``time_unit`` is the unit of an integer
    time column. ``sequence`` numbers the changes visible to readers; ``published`` is the sequence that the pointer
    names. A writer of manifests has exclusive access until ``publisher_until_ms``. ``refusal`` is why nothing is
    planned, "" if planning works. ``is_dirty`` requests a controller cycle, ``recheck_ms`` is when time alone
    requires one. ``revision`` is incremented by each change of chunks and tasks: a controller that read an older value
    repeats its cycle.
    """

    tenant = ByteOrderedField(max_length=TENANT_NAME_MAX)
    name = ByteOrderedField(max_length=NAME_MAX)
    url = ByteOrderedField(max_length=URL_MAX)
    time_column = models.CharField(max_length=COLUMN_MAX)
    time_unit = models.CharField(max_length=2, blank=True)
    columns = models.JSONField(default=list)
    arrow_schema = models.TextField(blank=True)
    partition_columns = models.JSONField(default=list)
    is_paused = models.BooleanField(default=False)
    refusal = models.CharField(max_length=REASON_MAX, blank=True)
    is_dirty = models.BooleanField(default=False)
    sequence = models.PositiveBigIntegerField(default=0)
    published = models.PositiveBigIntegerField(default=0)
    publish_error = models.CharField(max_length=REASON_MAX, blank=True)
    publisher_until_ms = models.BigIntegerField(null=True)
    recheck_ms = models.BigIntegerField(null=True)
    revision = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    analysed_at_ms = models.BigIntegerField(null=True)

    objects = ConfinedManager("tenant")

    class Meta:
        verbose_name = "table"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="tables_source_name_unique"),
            models.UniqueConstraint(fields=["url"], name="tables_source_url_unique"),
            models.CheckConstraint(condition=Q(published__lte=F("sequence")), name="tables_source_publishes_behind"),
        ]
        indexes = [
            # Tables that need a controller cycle.
            models.Index(fields=["id"], condition=Q(is_dirty=True), name="tables_source_dirty"),
            # Tables whose manifest is behind.
            models.Index(fields=["id"], condition=Q(sequence__gt=F("published")), name="tables_source_behind"),
        ]
        ordering = ["tenant", "name"]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"


class Policy(models.Model):
    """Compaction policy of a data source; ``engine.lanes.tables.plan`` defines the numbers.

    Weights are in percent. ``granularity`` is a period like ``day`` or ``P1D``, counted from ``origin_ms`` in
    ``time_zone``.
    """

    source = models.OneToOneField(DataSource, on_delete=models.CASCADE, related_name="policy")
    granularity = models.CharField(max_length=30, default="day")
    time_zone = models.CharField(max_length=ZONE_MAX, default="UTC")
    origin_ms = models.BigIntegerField(null=True)
    segment_bytes_max = models.PositiveBigIntegerField(default=500 * MB)
    segment_rows_max = models.PositiveBigIntegerField(default=0)
    small_cost = models.PositiveBigIntegerField(default=1_000 * MB)
    task_cost_max = models.PositiveBigIntegerField(default=4_000 * MB)
    open_cost = models.PositiveBigIntegerField(default=4 * MB)
    gain_half = models.PositiveIntegerField(default=8)
    weight_fragmentation = models.PositiveIntegerField(default=55)
    weight_oversize = models.PositiveIntegerField(default=20)
    weight_alignment = models.PositiveIntegerField(default=10)
    weight_recency = models.PositiveIntegerField(default=15)
    half_life_seconds = models.PositiveIntegerField(default=0)
    hot_seconds = models.PositiveIntegerField(default=0)
    running_max = models.PositiveIntegerField(default=4)
    running_cost_max = models.PositiveBigIntegerField(default=16_000 * MB)
    waiting_max = models.PositiveIntegerField(default=100)
    low_water = models.PositiveIntegerField(default=0)
    skips_max = models.PositiveIntegerField(default=2)
    ageing_seconds = models.PositiveIntegerField(default=0)
    align = models.CharField(max_length=10, choices=ALIGN, default="touched")
    sort_columns = models.JSONField(default=list)
    roll_up = models.JSONField(null=True)
    bytes_per_day = models.PositiveBigIntegerField(default=0)
    deletion_delay_seconds = models.PositiveIntegerField(default=7200)
    fingerprint = models.CharField(max_length=DIGEST_MAX, blank=True)
    changed_at = models.DateTimeField(auto_now=True)

    objects = ConfinedManager("source__tenant")

    class Meta:
        verbose_name_plural = "policies"

    def __str__(self) -> str:
        return f"policy of {self.source_id}"


class Registration(models.Model):
    """One call that registered files or dropped an interval; its changes became visible in one transaction."""

    source = models.ForeignKey(DataSource, on_delete=models.CASCADE, related_name="registrations")
    mode = models.CharField(max_length=10, choices=RegistrationMode)
    actor = models.CharField(max_length=150)
    why = models.CharField(max_length=REASON_MAX, blank=True)
    file_count = models.PositiveIntegerField()
    byte_count = models.PositiveBigIntegerField()
    row_count = models.PositiveBigIntegerField()
    refused_count = models.PositiveIntegerField(default=0)
    start_ms = models.BigIntegerField(null=True)
    end_ms = models.BigIntegerField(null=True)
    sequence = models.PositiveBigIntegerField()
    at_ms = models.BigIntegerField()

    objects = ConfinedManager("source__tenant")

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.mode} of {self.file_count} files"


class Segment(models.Model):
    """A file of a data source, or an interval without rows (``is_tombstone``, no file).

    ``path`` is relative to the data source, ``folder`` is that of its partition ("" if none). The interval is that of
    the timeline entry, in whole chunks; ``first_ms`` and ``last_ms`` are the smallest and largest time in the file.
    ``replaced_in`` is the sequence from which readers no longer see it, ``unlinked_at_ms`` when the pointer reached
    that sequence: the object is deleted after a delay. ``is_spanning`` is set if it touches several chunks.
    """

    source = models.ForeignKey(DataSource, on_delete=models.CASCADE, related_name="segments", db_index=False)
    state = models.CharField(max_length=12, choices=SegmentState, default=SegmentState.VISIBLE)
    path = ByteOrderedField(max_length=PATH_MAX, blank=True)
    folder = ByteOrderedField(max_length=PATH_MAX, blank=True)
    start_ms = models.BigIntegerField()
    end_ms = models.BigIntegerField()
    is_spanning = models.BooleanField(default=False)
    version = ByteOrderedField(max_length=VERSION_MAX)
    minor_version = models.PositiveIntegerField(default=0)
    partition = models.PositiveIntegerField()
    is_tombstone = models.BooleanField(default=False)
    size_bytes = models.PositiveBigIntegerField()
    row_count = models.PositiveBigIntegerField()
    first_ms = models.BigIntegerField(null=True)
    last_ms = models.BigIntegerField(null=True)
    checksum = models.CharField(max_length=DIGEST_MAX, blank=True)
    facts = models.JSONField(default=dict)
    registration = models.ForeignKey(Registration, null=True, on_delete=models.SET_NULL, related_name="segments")
    made_by = models.ForeignKey("tables.Task", null=True, on_delete=models.PROTECT, related_name="outputs")
    replaced_by = models.ForeignKey("tables.Task", null=True, on_delete=models.PROTECT, related_name="replaced")
    reason = models.CharField(max_length=REASON_MAX, blank=True)
    added_sequence = models.PositiveBigIntegerField()
    replaced_in = models.PositiveBigIntegerField(null=True)
    unlinked_at_ms = models.BigIntegerField(null=True)
    created_at_ms = models.BigIntegerField()

    objects = ConfinedManager("source__tenant")

    class Meta:
        verbose_name = "file"
        constraints = [
            models.UniqueConstraint(
                fields=["source", "path"],
                condition=~Q(state=SegmentState.DELETED) & Q(is_tombstone=False),
                name="tables_segment_path_unique",
            ),
            models.UniqueConstraint(
                fields=["source", "start_ms", "end_ms", "version", "partition"],
                condition=Q(state=SegmentState.VISIBLE),
                name="tables_segment_identity_unique",
            ),
            models.CheckConstraint(condition=Q(start_ms__lt=F("end_ms")), name="tables_segment_takes_time"),
            models.CheckConstraint(
                condition=Q(is_tombstone=True, path="", size_bytes=0) | (Q(is_tombstone=False) & ~Q(path="")),
                name="tables_segment_is_a_file",
            ),
        ]
        indexes = [
            # Segments of a data source by state and start.
            models.Index(fields=["source", "state", "start_ms"], name="tables_segment_by_start"),
            models.Index(
                fields=["source", "start_ms"],
                condition=Q(state=SegmentState.VISIBLE, is_spanning=True),
                name="tables_segment_spanning",
            ),
            # Segments whose objects are due for deletion.
            models.Index(
                fields=["source", "unlinked_at_ms"],
                condition=Q(state=SegmentState.REPLACED),
                name="tables_segment_to_delete",
            ),
        ]
        ordering = ["source", "start_ms", "path"]

    def __str__(self) -> str:
        return self.path or f"tombstone {self.id}"


class Chunk(models.Model):
    """A chunk of a timeline: its last analysis, its state and the reason.

    ``version``, ``segment_count`` and ``digest`` identify the content analysed, ``fingerprint`` the policy, and
    ``analysis`` is the result. ``outputs`` are the segments that the last task wrote, ``task`` is the open task that
    owns the chunk. ``is_dirty`` is set if segments were added, removed or replaced since.
    """

    source = models.ForeignKey(DataSource, on_delete=models.CASCADE, related_name="chunks", db_index=False)
    start_ms = models.BigIntegerField()
    end_ms = models.BigIntegerField()
    state = models.CharField(max_length=10, choices=ChunkStatus, default=ChunkStatus.UNSTABLE)
    is_dirty = models.BooleanField(default=True)
    fingerprint = models.CharField(max_length=DIGEST_MAX, blank=True)
    version = ByteOrderedField(max_length=VERSION_MAX, blank=True)
    segment_count = models.PositiveIntegerField(default=0)
    byte_count = models.PositiveBigIntegerField(default=0)
    largest_bytes = models.PositiveBigIntegerField(default=0)
    digest = models.CharField(max_length=DIGEST_MAX, blank=True)
    priority = models.PositiveIntegerField(default=0)
    analysis = models.JSONField(default=dict)
    cost = models.PositiveBigIntegerField(default=0)
    reason = models.CharField(max_length=REASON_MAX, blank=True)
    note = models.CharField(max_length=REASON_MAX, blank=True)
    task = models.ForeignKey("tables.Task", null=True, on_delete=models.SET_NULL, related_name="owned_chunks")
    outputs = models.JSONField(default=list)
    outputs_fingerprint = models.CharField(max_length=DIGEST_MAX, blank=True)
    failures = models.PositiveIntegerField(default=0)
    is_quarantined = models.BooleanField(default=False)
    quarantine_reason = models.CharField(max_length=REASON_MAX, blank=True)
    analyses = models.PositiveIntegerField(default=0)
    changes = models.PositiveIntegerField(default=0)
    commits = models.PositiveIntegerField(default=0)
    committed_at_ms = models.BigIntegerField(null=True)
    analysed_at_ms = models.BigIntegerField(null=True)
    recheck_ms = models.BigIntegerField(null=True)

    objects = ConfinedManager("source__tenant")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["source", "start_ms"], name="tables_chunk_unique"),
            models.CheckConstraint(condition=Q(start_ms__lt=F("end_ms")), name="tables_chunk_takes_time"),
        ]
        indexes = [
            # Changed chunks, to be analysed.
            models.Index(fields=["source", "start_ms"], condition=Q(is_dirty=True), name="tables_chunk_dirty"),
            # Deferred chunks by priority.
            models.Index(
                fields=["source", "-priority", "-end_ms"],
                condition=Q(state=ChunkStatus.DEFERRED),
                name="tables_chunk_deferred",
            ),
            models.Index(fields=["source", "state"], name="tables_chunk_by_state"),
        ]
        ordering = ["source", "start_ms"]

    def __str__(self) -> str:
        return f"chunk {self.start_ms} of {self.source_id}"


class ChunkOverride(models.Model):
    """An operator's action on an interval of whole chunks: never compact, or compact now.

    It ends when it is withdrawn, and "compact now" also when it was done.
    """

    source = models.ForeignKey(DataSource, on_delete=models.CASCADE, related_name="overrides", db_index=False)
    kind = models.CharField(max_length=10, choices=ChunkOverrideKind)
    start_ms = models.BigIntegerField()
    end_ms = models.BigIntegerField()
    actor = models.CharField(max_length=150)
    why = models.CharField(max_length=REASON_MAX)
    created_at_ms = models.BigIntegerField()
    ended_at_ms = models.BigIntegerField(null=True)
    ended_because = models.CharField(max_length=REASON_MAX, blank=True)

    objects = ConfinedManager("source__tenant")

    class Meta:
        verbose_name = "chunk override"
        verbose_name_plural = "chunk overrides"
        constraints = [
            models.CheckConstraint(condition=Q(start_ms__lt=F("end_ms")), name="tables_override_takes_time"),
        ]
        indexes = [
            # The active actions of a data source.
            models.Index(fields=["source", "start_ms"], condition=Q(ended_at_ms=None), name="tables_override_in_force"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.start_ms}"


class BadFile(models.Model):
    """A file that cannot be read, with the place in it and the error. It is not in the manifest until it is released.

    ``segment`` is null if the file was bad at registration. ``place`` is the row group and column named in the error.
    """

    source = models.ForeignKey(DataSource, on_delete=models.CASCADE, related_name="bad_files", db_index=False)
    path = ByteOrderedField(max_length=PATH_MAX)
    size_bytes = models.PositiveBigIntegerField(default=0)
    segment = models.ForeignKey(Segment, null=True, on_delete=models.CASCADE, related_name="bad_files")
    job = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="tables_bad_files")
    error_class = models.CharField(max_length=100)
    message = models.TextField(blank=True)
    place = models.CharField(max_length=200, blank=True)
    offset = models.BigIntegerField(default=-1)
    at_ms = models.BigIntegerField()
    released_at_ms = models.BigIntegerField(null=True)
    released_by = models.CharField(max_length=150, blank=True)
    release_why = models.CharField(max_length=REASON_MAX, blank=True)

    objects = ConfinedManager("source__tenant")

    class Meta:
        verbose_name = "quarantined file"
        verbose_name_plural = "quarantined files"
        constraints = [
            models.UniqueConstraint(
                fields=["source", "path"], condition=Q(released_at_ms=None), name="tables_bad_file_held_once"
            )
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.path}: {self.error_class}"


# Django discovers the models of tasks through this import.
from webadmin.lanes.tables import task_models  # noqa: E402, F401
