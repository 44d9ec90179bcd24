"""The state store: when a chunk has to be looked at again, and what events make of its row."""

from __future__ import annotations

from dataclasses import replace

from engine.lanes.tables.plan.model import Action, Chunk, ChunkState, StoredChunk

STATE_OF = {
    Action.SKIPPED: ChunkState.SKIPPED,
    Action.EMPTY: ChunkState.EMPTY,
    Action.STABLE: ChunkState.STABLE,
    Action.NO_OPINION: ChunkState.STABLE,
    Action.COMPACT: ChunkState.UNSTABLE,
}
"""What a chunk is once the rules were asked; chunks of no opinion are stable, with a note in their reason."""


def is_unchanged(row: StoredChunk, *, version: str, count: int, digest: str, fp: str) -> bool:
    """Say whether a chunk is as it was when its row was written, by the same policy."""
    chunk = row.chunk
    return chunk.digest == digest and chunk.count == count and chunk.version == version and row.fp == fp


def analysed(
    before: StoredChunk | None, source: str, chunk: Chunk, fp: str, *, look_again_ms: int | None = None
) -> StoredChunk:
    """Return the row of a chunk that the rules were asked about, since it or one that shares with it has changed.

    What was set aside is tried again: the next task will not read the same.
    """
    if before is None:
        return StoredChunk(source=source, chunk=chunk, state=STATE_OF[chunk.action], fp=fp, look_again_ms=look_again_ms)
    is_same = is_unchanged(before, version=chunk.version, count=chunk.count, digest=chunk.digest, fp=fp)
    return replace(
        before,
        chunk=chunk,
        state=STATE_OF[chunk.action],
        fp=fp,
        failures=before.failures if is_same else 0,
        quarantined="",
        look_again_ms=look_again_ms,
    )


def given(row: StoredChunk, task: str) -> StoredChunk:
    """Return the row of a chunk that a task takes; one of no opinion stays stable."""
    state = ChunkState.UNSTABLE if row.chunk.action is Action.COMPACT else row.state
    return replace(row, state=state, task=task, quarantined="")


def released(row: StoredChunk) -> StoredChunk:
    """Return the row of a chunk whose task is over and did nothing for it: it is planned again."""
    return replace(row, task="")


def shed(row: StoredChunk) -> StoredChunk:
    """Return the row of a chunk whose task was put off; one of no opinion stays stable."""
    state = ChunkState.DEFERRED if row.chunk.action is Action.COMPACT else row.state
    return replace(row, state=state, task="")


def succeeded(row: StoredChunk, outputs: tuple[int, ...], outputs_fp: str) -> StoredChunk:
    """Return the row of a chunk that a task has rewritten into these segments.

    It is looked at once more, since what is in it has changed; then the outputs tell that it is as it was left.
    """
    return replace(
        row,
        state=ChunkState.STABLE,
        task="",
        outputs=tuple(sorted(outputs)),
        outputs_fp=outputs_fp,
        failures=0,
        quarantined="",
    )


def failed(row: StoredChunk, why: str, *, failures_max: int) -> StoredChunk:
    """Return the row of a chunk on which a task failed for good; too many in a row set it aside."""
    failures = row.failures + 1
    if row.chunk.action is not Action.COMPACT:
        return replace(row, task="", failures=failures)
    if failures < failures_max:
        return replace(row, state=ChunkState.UNSTABLE, task="", failures=failures)
    return replace(row, state=ChunkState.DEFERRED, task="", failures=failures, quarantined=why or "it failed")


def cleared(row: StoredChunk) -> StoredChunk:
    """Return the row of a chunk that an operator releases: it may be taken back like all that was put off."""
    return replace(row, failures=0, quarantined="")
