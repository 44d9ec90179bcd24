"""Where a block of a bucket, and a group of blocks, is in its life."""

from __future__ import annotations

from django.db import models


class BlockState(models.TextChoices):
    """Each block the bucket has or had is in exactly one of these: nothing is ever in limbo."""

    LIVE = "live", "live"  # of no group; planned from once its meta.json is in the bucket
    OWNED = "owned", "owned"  # a source of exactly one open group
    PENDING = "pending", "pending"  # written by a job whose group is not done: nobody outside sees it
    SUPERSEDED = "superseded", "superseded"  # its data is in other blocks; a deletion mark follows
    MARKED = "marked", "marked"  # has a deletion mark; its objects go when the delay is over
    GONE = "gone", "gone"  # its objects are not in the bucket any more; the row is history


PLANNABLE = (BlockState.LIVE, BlockState.OWNED)
"""The states in which readers of the bucket need a block, as far as we know."""


class GroupState(models.TextChoices):
    """How far a group is."""

    OPEN = "open", "open"  # its jobs wait, run, or are parked
    DONE = "done", "done"  # all parts are done: its results are live
    DISSOLVED = "dissolved", "dissolved"  # given up: its blocks are planned anew


class StepKind(models.TextChoices):
    """What an outbox row still has to write to the bucket."""

    WRITE_META = "write_meta", "write meta.json"
    MARK_DELETION = "mark_deletion", "mark for deletion"
    MARK_NO_COMPACT = "mark_no_compact", "mark as not to be compacted"
    UNMARK_NO_COMPACT = "unmark_no_compact", "take the no-compact mark back"
