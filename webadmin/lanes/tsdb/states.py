"""States of blocks, groups and outbox steps."""

from __future__ import annotations

from django.db import models


class BlockState(models.TextChoices):
    """State of a block that the bucket has or had; every block is in exactly one."""

    LIVE = "live", "live"  # in no group; planned once its meta.json is in the bucket
    OWNED = "owned", "owned"  # a source of exactly one open group
    PENDING = "pending", "pending"  # result of a job whose group is not done; invisible to readers
    SUPERSEDED = "superseded", "superseded"  # its data is in other blocks; a deletion mark follows
    MARKED = "marked", "marked"  # has a deletion mark; its objects are deleted after the delay
    GONE = "gone", "gone"  # its objects are no longer in the bucket; the row is history


PLANNABLE = (BlockState.LIVE, BlockState.OWNED)
"""States of blocks that readers of the bucket need."""


class GroupState(models.TextChoices):
    """State of a group."""

    OPEN = "open", "open"  # its jobs wait, run, or are parked
    DONE = "done", "done"  # all partitions are done and the results are live
    DISSOLVED = "dissolved", "dissolved"  # dissolved; its blocks are planned again


class StepKind(models.TextChoices):
    """Kind of an outbox step."""

    WRITE_META = "write_meta", "write meta.json"
    MARK_DELETION = "mark_deletion", "mark for deletion"
    MARK_NO_COMPACT = "mark_no_compact", "mark as not to be compacted"
    UNMARK_NO_COMPACT = "unmark_no_compact", "take the no-compact mark back"
