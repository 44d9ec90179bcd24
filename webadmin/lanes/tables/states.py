"""Where a segment, a chunk, a task, a chunk of a task and a manifest is in its life."""

from __future__ import annotations

from django.db import models


class SegmentState(models.TextChoices):
    """Each file of a data source that we know is in exactly one of these."""

    VISIBLE = "visible", "visible"  # readers see it as soon as the pointer has moved
    REPLACED = "replaced", "replaced"  # others hold its rows, or its interval was dropped; readers of before may read
    QUARANTINED = "quarantined", "quarantined"  # it cannot be read: kept out, its object untouched
    DELETED = "deleted", "deleted"  # its object is gone; the row is history


class ChunkStanding(models.TextChoices):
    """What is known of a chunk."""

    EMPTY = "empty", "empty"  # no rows
    STABLE = "stable", "stable"  # as good as it can be
    UNSTABLE = "unstable", "unstable"  # worth compacting: it belongs to a task, or will
    DEFERRED = "deferred", "deferred"  # worth compacting, and remembered until there is room
    SKIPPED = "skipped", "skipped"  # not looked at: hot, excluded, unbounded


class TaskState(models.TextChoices):
    """How far a task is; whether it waits, is blocked or runs is its job's state."""

    OPEN = "open", "open"  # its job waits, runs, or is parked
    DONE = "done", "done"  # every chunk was committed or given up
    SHED = "shed", "shed"  # too many were waiting: its chunks are deferred
    ENDED = "ended", "ended"  # replaced, given up, or failed for good: its chunks are looked at anew


class ChunkOutcome(models.TextChoices):
    """What became of one chunk of a task."""

    PLANNED = "planned", "planned"  # not committed yet
    PUBLISHED = "published", "published"  # its outputs took the place of its segments
    CARRIED_OVER = "carried_over", "carried over"  # the same, and what came meanwhile stands beside them
    ABORTED = "aborted", "aborted"  # something was removed or replaced meanwhile: its outputs are discarded
    GIVEN_UP = "given_up", "given up"  # the task ended without it


class ChunkOrderKind(models.TextChoices):
    """What an operator wants of chunks."""

    NEVER = "never", "never"  # they are not compacted
    NOW = "now", "compact now"  # their task goes first


class RegistrationMode(models.TextChoices):
    """How files come into a timeline."""

    APPEND = "append", "append"  # beside what is there
    REPLACE = "replace", "replace"  # in the place of what lies wholly inside
    DROP = "drop", "drop"  # nothing takes the place of what lies wholly inside
