"""Reason texts of decisions, by cause (see ``docs/reference/timeline-compaction.md``)."""

from __future__ import annotations

from engine.core.formatting import format_time

HOT = "hot"
EXCLUDED = "excluded"
UNBOUNDED = "unbounded"
TIED = "tied"
SET_ASIDE = "set-aside"
BUSY = "busy"
NOTHING = "nothing"
TOMBSTONES = "tombstones"
CONVERGED = "converged"
SINGLE = "single"
IDEAL = "ideal"
MISALIGNED = "misaligned"
MISALIGNED_ZONE = "misaligned-zone"
TOO_MANY = "too-many"
OVERSIZE = "oversize"
OVERFULL = "overfull"
ALIGNED = "aligned"

GRANULARITY_CHANGED = "the granularity has changed"
POLICY_CHANGED = "the policy has changed"
HIDDEN_IN_PART = "newer data hides a part of a shared segment"

CHUNK_REASONS = {
    HOT: "it is in the hot window of the newest chunks",
    EXCLUDED: "it is excluded: {detail}",
    UNBOUNDED: "it is unbounded: {detail} overlaps too many chunks to be cut",
    TIED: "it shares a segment with a skipped chunk, and files are rewritten whole: {detail}",
    SET_ASIDE: "it waits: {detail}",
    BUSY: "it is in task {detail}",
    NOTHING: "nothing is visible in it",
    TOMBSTONES: "only tombstones are visible in it",
    CONVERGED: "it is unchanged since the last task{detail}",
    SINGLE: "one segment of {bytes}, which is not too large",
    IDEAL: "{segments} segments of {bytes}: already the minimum number",
    MISALIGNED: "sizes are good, but it shares segments with adjacent chunks: misaligned",
    MISALIGNED_ZONE: "sizes are good, but segments do not end where chunks do: misaligned with time zone {detail}",
    TOO_MANY: "{segments} segments of {bytes} could be {out}",
    OVERSIZE: "a segment of {largest} exceeds the target size",
    OVERFULL: "a segment exceeds the target number of rows",
    ALIGNED: "sizes are good, but it shares segments with adjacent chunks, and the policy requires alignment",
}
"""Reasons for the decision about a chunk."""
IN_TASK = "; in task "
"""Separates the reason of a chunk from the name of its task."""


def ended_reason(reason: str, why: str) -> str:
    """Return the reason of a chunk whose task ended without an effect on it."""
    return f"{reason.partition(IN_TASK)[0]}; its task ended: {why}"


def chunk_changed(start_ms: int) -> str:
    """Return why a waiting task is dissolved."""
    return f"the content of the chunk from {format_time(start_ms)} has changed"
