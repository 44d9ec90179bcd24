"""Reason texts of a plan, by cause (see ``docs/reference/time-interval-compaction.md``)."""

from __future__ import annotations

from engine.core.formatting import format_duration, format_time

VERTICAL = "vertical"
HORIZONTAL = "horizontal"
RESUMED = "resumed"
REWRITE = "rewrite"

GROUP_REASONS = {
    VERTICAL: "{count} blocks in {slot} overlap in time{parts}",
    HORIZONTAL: "{count} blocks in {slot} follow one another{parts}",
    RESUMED: "a group of {slot} was started and is not done{parts}",
    REWRITE: "a block in {slot} has many tombstones{parts}",
}
"""Reasons for a group."""

IN_GROUP = "in-group"
IN_JOB = "in-job"
SLOT_OPEN = "slot-open"
INCOMPLETE = "incomplete"
YOUNG = "young"
SMALLER_FIRST = "smaller-first"
SLOT_TAKEN = "slot-taken"
TOO_LARGE = "too-large"
NEIGHBOURS = "neighbours"
NOT_CHOSEN = "not-chosen"
FRESH = "fresh"
ALONE = "alone"
MISFIT = "misfit"
NO_COMPACT = "no-compact"
QUARANTINED = "quarantined"
DOWNSAMPLED = "downsampled"
DELETED = "deleted"
PARTIAL = "partial"
CONTAINED = "contained"
REFUSED = "refused"

BLOCK_REASONS = {
    IN_GROUP: "it is merged with the other blocks of {slot}",
    IN_JOB: "{slot}: {detail}",
    SLOT_OPEN: "{slot} has not ended; it ends at {until}",
    INCOMPLETE: "no block reaches the end of {slot} yet; its blocks are merged when one does, or from {until} on",
    YOUNG: "more blocks may follow block {detail} in {slot} until {until}",
    SMALLER_FIRST: "smaller intervals in {slot} are merged first",
    SLOT_TAKEN: "the group of {slot} is not done: {detail}",
    TOO_LARGE: "{slot} is not merged: {detail}",
    NEIGHBOURS: "there is no other block to merge it with in {slot} so far",
    NOT_CHOSEN: "the rules {detail} do not group it now",
    FRESH: "it was uploaded within the consistency delay; it is considered from {until} on",
    ALONE: "no block is left to merge it with, up to {slot}",
    MISFIT: "it crosses a border of every interval, or is longer than the largest one",
    NO_COMPACT: "it is marked as not to be compacted: {detail}",
    QUARANTINED: "it is quarantined: {detail}",
    DOWNSAMPLED: "it is downsampled: its chunks have another format and are not compacted",
    DELETED: "it is marked for deletion",
    PARTIAL: "it has no meta.json: an upload is running or was interrupted",
    CONTAINED: "all its data is in {detail}; it is marked for deletion",
    REFUSED: "this tenant is not planned: {detail}",
}
"""Reasons for a block's status."""


def slot_text(range_ms: int, start_ms: int) -> str:
    """Return the name of a slot: its length and start."""
    return f"the {format_duration(range_ms)} from {format_time(start_ms)}"


def too_large_reason(count: int) -> str:
    """Return why a group is not planned that would need ``count`` partitions."""
    return (
        f"its group would need {count} partitions by series, and readers or compactors of this bucket treat partitions "
        "of a group as duplicates and delete all but one; raise the limits of a partition, which takes more memory"
    )


def partitions_text(count: int) -> str:
    """Return the suffix of a reason that states the number of partitions."""
    return f", in {count} partitions by series" if count > 1 else ""
