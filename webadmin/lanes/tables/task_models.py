"""Models of tasks and their chunks, manifests, and discarded outputs."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from webadmin.base.access.confinement import ConfinedManager
from webadmin.base.database.fields import ByteOrderedField
from webadmin.lanes.tables.column_sizes import DIGEST_MAX, PATH_MAX, REASON_MAX
from webadmin.lanes.tables.states import ChunkOutcome, TaskState
from webadmin.schedule.models import Job


class Task(models.Model):
    """Consecutive chunks that are compacted by one job.

    ``priority`` is in millionths, ``cost`` in bytes including the cost of opening files. ``admitted_at_ms`` is when it
    was admitted to the schedule; ``passed`` is how often cheaper tasks went first because it did not fit. ``name`` is
    assigned by the planner and is the prefix of the job's name. ``verified_token`` is the token of the last failed run
    after which files were read individually, ``finding`` the result of that.
    """

    source = models.ForeignKey("tables.DataSource", on_delete=models.CASCADE, related_name="tasks", db_index=False)
    job = models.OneToOneField(Job, null=True, on_delete=models.PROTECT, related_name="tables_task")
    name = models.CharField(max_length=60)
    state = models.CharField(max_length=10, choices=TaskState, default=TaskState.OPEN)
    start_ms = models.BigIntegerField()
    end_ms = models.BigIntegerField()
    chunk_count = models.PositiveIntegerField()
    segment_count = models.PositiveIntegerField()
    byte_count = models.PositiveBigIntegerField()
    cost = models.PositiveBigIntegerField()
    expected_outputs = models.PositiveIntegerField(default=0)
    priority = models.PositiveIntegerField()
    colour = models.PositiveIntegerField(default=0)
    is_over_limit = models.BooleanField(default=False)
    is_ordered = models.BooleanField(default=False)
    admitted_at_ms = models.BigIntegerField(null=True)
    passed = models.PositiveIntegerField(default=0)
    cause = models.CharField(max_length=REASON_MAX)
    shared = models.JSONField(default=list)
    grid = models.CharField(max_length=DIGEST_MAX, blank=True)
    fingerprint = models.CharField(max_length=DIGEST_MAX)
    command_index = models.BigIntegerField()
    created_at_ms = models.BigIntegerField()
    finished_at_ms = models.BigIntegerField(null=True)
    ended_because = models.CharField(max_length=REASON_MAX, blank=True)
    verified_token = models.BigIntegerField(default=0)
    finding = models.CharField(max_length=REASON_MAX, blank=True)
    bytes_read = models.PositiveBigIntegerField(null=True)
    bytes_written = models.PositiveBigIntegerField(null=True)
    rows_read = models.PositiveBigIntegerField(null=True)
    rows_written = models.PositiveBigIntegerField(null=True)

    objects = ConfinedManager("source__tenant")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state=TaskState.OPEN, finished_at_ms=None)
                | (~Q(state=TaskState.OPEN) & Q(finished_at_ms__isnull=False)),
                name="tables_task_ends_some_time",
            ),
        ]
        indexes = [
            # Open and finished tasks of a data source, newest first.
            models.Index(fields=["source", "state", "-id"], name="tables_task_of_source"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"task {self.id}"


class TaskDependency(models.Model):
    """``task`` waits until the job of ``needs`` has ended, with any outcome: they share a segment."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="needs", db_index=False)
    needs = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="holds_up")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "needs"], name="tables_dependency_unique"),
            models.CheckConstraint(condition=~Q(task=F("needs")), name="tables_dependency_of_another"),
        ]

    def __str__(self) -> str:
        return f"task {self.task_id} after {self.needs_id}"


class TaskChunk(models.Model):
    """A chunk of a task: its state at planning, and its outcome. These rows are the history of the chunk.

    ``keys`` are its segments at planning, ``shared`` those of them that other chunks have too.
    """

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="chunks", db_index=False)
    source = models.ForeignKey(
        "tables.DataSource", on_delete=models.CASCADE, related_name="task_chunks", db_index=False
    )
    start_ms = models.BigIntegerField()
    end_ms = models.BigIntegerField()
    digest = models.CharField(max_length=DIGEST_MAX)
    segment_count = models.PositiveIntegerField()
    byte_count = models.PositiveBigIntegerField()
    keys = models.JSONField(default=list)
    shared = models.JSONField(default=list)
    is_open = models.BooleanField(default=True)
    outcome = models.CharField(max_length=12, choices=ChunkOutcome, default=ChunkOutcome.PLANNED)
    why = models.CharField(max_length=REASON_MAX, blank=True)
    output_count = models.PositiveIntegerField(null=True)
    output_bytes = models.PositiveBigIntegerField(null=True)
    row_count = models.PositiveBigIntegerField(null=True)
    ended_at_ms = models.BigIntegerField(null=True)

    objects = ConfinedManager("source__tenant")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "start_ms"], name="tables_task_chunk_unique"),
            # Of two controllers that plan the same chunk concurrently, the second fails.
            models.UniqueConstraint(
                fields=["source", "start_ms"], condition=Q(is_open=True), name="tables_chunk_of_one_open_task"
            ),
        ]
        indexes = [
            # History of a chunk, newest first.
            models.Index(fields=["source", "start_ms", "-id"], name="tables_task_chunk_history"),
        ]
        ordering = ["task", "start_ms"]

    def __str__(self) -> str:
        return f"chunk {self.start_ms} of task {self.task_id}"


class TaskSegment(models.Model):
    """A segment that is part of a task's plan."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="planned", db_index=False)
    segment = models.ForeignKey("tables.Segment", on_delete=models.CASCADE, related_name="planned_in")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "segment"], name="tables_task_segment_unique")]

    def __str__(self) -> str:
        return f"segment {self.segment_id} of task {self.task_id}"


class Manifest(models.Model):
    """A manifest: readers see it from ``published_at_ms`` (null: not yet) to ``superseded_at_ms``.

    Its object is deleted after a delay, at ``deleted_at_ms``.
    """

    source = models.ForeignKey("tables.DataSource", on_delete=models.CASCADE, related_name="manifests", db_index=False)
    sequence = models.PositiveBigIntegerField()
    path = models.CharField(max_length=PATH_MAX)
    sha256 = models.CharField(max_length=64)
    file_count = models.PositiveIntegerField()
    byte_count = models.PositiveBigIntegerField()
    row_count = models.PositiveBigIntegerField()
    written_at_ms = models.BigIntegerField()
    published_at_ms = models.BigIntegerField(null=True)
    superseded_at_ms = models.BigIntegerField(null=True)
    deleted_at_ms = models.BigIntegerField(null=True)

    objects = ConfinedManager("source__tenant")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["source", "sequence"], name="tables_manifest_unique")]
        ordering = ["source", "-sequence"]

    def __str__(self) -> str:
        return f"manifest {self.sequence}"


class DiscardedOutput(models.Model):
    """A file that a task wrote and that will not be published, because its chunk or its run was given up.

    The object is deleted at ``delete_at_ms``. ``path`` may be a prefix (``is_prefix``), for files that a run without a
    report may have left.
    """

    source = models.ForeignKey("tables.DataSource", on_delete=models.CASCADE, related_name="discarded", db_index=False)
    task = models.ForeignKey(Task, null=True, on_delete=models.SET_NULL, related_name="discarded")
    path = ByteOrderedField(max_length=PATH_MAX)
    is_prefix = models.BooleanField(default=False)
    reason = models.CharField(max_length=REASON_MAX)
    created_at_ms = models.BigIntegerField()
    delete_at_ms = models.BigIntegerField()
    deleted_at_ms = models.BigIntegerField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=REASON_MAX, blank=True)

    objects = ConfinedManager("source__tenant")

    class Meta:
        indexes = [
            # Outputs that are due for deletion.
            models.Index(
                fields=["source", "delete_at_ms"],
                condition=Q(deleted_at_ms=None),
                name="tables_discarded_open",
            ),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.path
