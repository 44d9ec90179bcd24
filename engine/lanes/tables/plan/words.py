"""How decisions say their reasons: the sentences, by cause, and sizes as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.sizes import size_text
from engine.core.time_texts import moment

if TYPE_CHECKING:
    from engine.lanes.tables.plan.model import Chunk, PlannedTask, StoredChunk

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

GRANULARITY_CHANGED = "the granularity is another now"
POLICY_CHANGED = "the policy is another now"
HIDDEN_IN_PART = "newer data hides a part of a segment that it shares"

CHUNK = {
    HOT: "it is among the newest, which the hot window leaves alone",
    EXCLUDED: "it is excluded: {detail}",
    UNBOUNDED: "it is unbounded: {detail} touches too many chunks to be cut by them",
    TIED: "it shares a segment with a chunk that is left alone, and files are rewritten whole: {detail}",
    SET_ASIDE: "it waits: {detail}",
    BUSY: "task {detail} has it",
    NOTHING: "nothing is visible in it",
    TOMBSTONES: "only tombstones are visible in it",
    CONVERGED: "it is as the last task left it{detail}",
    SINGLE: "one segment of {bytes}, which is not too large",
    IDEAL: "{segments} segments of {bytes}: fewer could not hold them",
    MISALIGNED: "sizes are good, but it shares segments with chunks beside it: misaligned",
    MISALIGNED_ZONE: "sizes are good, but segments do not end where chunks do: misaligned with time zone {detail}",
    TOO_MANY: "{segments} segments of {bytes} could be {out}",
    OVERSIZE: "a segment of {largest} is larger than wanted",
    OVERFULL: "a segment has more rows than wanted",
    ALIGNED: "sizes are good, but it shares segments with chunks beside it, and the policy wants them aligned",
}
"""Why the rules say of a chunk what they say."""


_IN_TASK = "; in task "


def chunk_reason(chunk: Chunk) -> str:
    """Return why the rules say of a chunk what they say; estimates are named as such."""
    text = CHUNK[chunk.cause].format(
        detail=chunk.detail,
        segments=chunk.segments,
        bytes=size_text(chunk.bytes),
        largest=size_text(chunk.largest_bytes),
        out=chunk.out,
    )
    return text + (" (some sizes are not known)" if chunk.is_estimate else "")


def stored_reason(row: StoredChunk) -> str:
    """Return why a chunk is in its state."""
    text = row.chunk.reason
    if row.quarantined:
        return f"{text}; set aside after {row.failures} failures: {row.quarantined}"
    if row.state == "deferred":
        return f"{text}; put off, since more urgent work fills the queue"
    return f"{text}{_IN_TASK}{row.task}" if row.task else text


def ended_reason(reason: str, why: str) -> str:
    """Return what a chunk's reason becomes when its task ends without having done anything for it."""
    return f"{reason.partition(_IN_TASK)[0]}; its task ended: {why}"


def task_reason(task: PlannedTask) -> str:
    """Return why these chunks are a task, and what it waits for."""
    best = max(task.chunks, key=lambda chunk: chunk.priority)
    text = f"{len(task.chunks)} chunks from {moment(task.start_ms)}" if len(task.chunks) > 1 else "one chunk"
    text += f", of which the most urgent from {moment(best.start_ms)}: {best.reason}"
    if task.is_over_limit:
        text += "; it cannot be cut and costs more than a task should, so it runs alone"
    return text + (f"; after {', '.join(task.deps)}, which share segments with it" if task.deps else "")


def chunk_changed(start_ms: int) -> str:
    """Return why a waiting task is replaced."""
    return f"what is in the chunk from {moment(start_ms)} has changed"
