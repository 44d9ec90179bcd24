"""States of segments, chunks, tasks, chunks of tasks and registrations."""

from __future__ import annotations

from django.db import models


class SegmentState(models.TextChoices):
    """State of a file of a data source; every known file is in exactly one."""

    VISIBLE = "visible", "visible"  # readers see it once the pointer has moved
    REPLACED = "replaced", "replaced"  # its rows are in other files, or were dropped; older readers may read it
    QUARANTINED = "quarantined", "quarantined"  # cannot be read: hidden, its object unchanged
    DELETED = "deleted", "deleted"  # its object is deleted; the row is history


class ChunkStatus(models.TextChoices):
    """State of a chunk."""

    EMPTY = "empty", "empty"  # no rows
    STABLE = "stable", "stable"  # nothing to compact
    UNSTABLE = "unstable", "unstable"  # worth compacting: it has a task or will have one
    DEFERRED = "deferred", "deferred"  # worth compacting, kept for later until there is room
    SKIPPED = "skipped", "skipped"  # not analysed: hot, excluded, unbounded


class TaskState(models.TextChoices):
    """State of a task; whether it waits, is blocked or runs is the state of its job."""

    OPEN = "open", "open"  # its job waits, runs, or is parked
    DONE = "done", "done"  # every chunk was committed, aborted or given up
    SHED = "shed", "shed"  # shed because too many tasks were waiting: its chunks are deferred
    ENDED = "ended", "ended"  # replaced, given up, or failed permanently: its chunks are analysed again


class ChunkOutcome(models.TextChoices):
    """Outcome of one chunk of a task."""

    PLANNED = "planned", "planned"  # not committed yet
    PUBLISHED = "published", "published"  # its outputs replaced its segments
    CARRIED_OVER = "carried_over", "carried over"  # published, with late files beside its outputs
    ABORTED = "aborted", "aborted"  # a segment was removed or replaced meanwhile: its outputs are discarded
    GIVEN_UP = "given_up", "given up"  # the task ended without it


class ChunkOverrideKind(models.TextChoices):
    """Kind of an operator's action on chunks."""

    NEVER = "never", "never"  # they are not compacted
    NOW = "now", "compact now"  # their task goes first


class RegistrationMode(models.TextChoices):
    """How a call changes a timeline."""

    APPEND = "append", "append"  # beside existing files
    REPLACE = "replace", "replace"  # in place of files wholly inside the interval
    DROP = "drop", "drop"  # without a replacement for files wholly inside the interval
