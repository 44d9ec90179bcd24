"""How a plan says its reasons: the sentences, by cause, and times and lengths as people read them."""

from __future__ import annotations

from engine.core.time_texts import length, moment

VERTICAL = "vertical"
HORIZONTAL = "horizontal"
RESUMED = "resumed"
REWRITE = "rewrite"

GROUPED = {
    VERTICAL: "{count} blocks in {slot} overlap in time{parts}",
    HORIZONTAL: "{count} blocks lie in {slot} one after the other{parts}",
    RESUMED: "a group of {slot} was begun and is not done{parts}",
    REWRITE: "a block in {slot} has many tombstones{parts}",
}
"""Why blocks are a group."""

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

STANDING = {
    IN_GROUP: "it is merged with the others of {slot}",
    IN_JOB: "{slot}: {detail}",
    SLOT_OPEN: "{slot} is not over before {until}",
    INCOMPLETE: "nothing after {slot} has come yet; its blocks are merged when something does, or from {until} on",
    YOUNG: "others may follow block {detail} into {slot} until {until}",
    SMALLER_FIRST: "smaller intervals in {slot} are merged first",
    SLOT_TAKEN: "the group of {slot} is not done: {detail}",
    TOO_LARGE: "{slot} is not merged: {detail}",
    NEIGHBOURS: "nothing to merge it with in {slot} so far; more may come",
    NOT_CHOSEN: "the rules {detail} make no group of it now",
    FRESH: "it came less than the consistency delay ago: it is looked at from {until} on",
    ALONE: "nothing is left to merge it with, up to {slot}",
    MISFIT: "it crosses a border of every interval it could lie in, or is longer than the largest",
    NO_COMPACT: "it is marked as not to be compacted: {detail}",
    QUARANTINED: "it is quarantined: {detail}",
    DOWNSAMPLED: "downsampled: left alone, since its chunks are of another format",
    DELETED: "it is marked for deletion",
    PARTIAL: "it has no meta.json: an upload that runs, or one that broke off",
    CONTAINED: "all it holds is in {detail}; it is marked for deletion",
    REFUSED: "nothing of this tenant is planned: {detail}",
}
"""Why a block stands where it does."""


def slot(range_ms: int, start_ms: int) -> str:
    """Return the name of a slot: its length and where it begins."""
    return f"the {length(range_ms)} from {moment(start_ms)}"


def too_large(count: int) -> str:
    """Return why a group is not planned that would have to be cut into ``count`` parts."""
    return (
        f"its group would be cut into {count} parts by series, and readers or compactors of this bucket take parts of "
        "a group for duplicates and delete all but one; raise the limits of a part, which takes more memory"
    )


def parts(count: int) -> str:
    """Return what a reason says about the number of parts."""
    return f", cut into {count} parts by series" if count > 1 else ""
