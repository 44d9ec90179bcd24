"""The transitions of rows in the state store."""

from __future__ import annotations

from dataclasses import replace

from engine.lanes.tables.plan.model import Action, Chunk, ChunkState, StoredChunk

STATE_OF = {
    Action.SKIPPED: ChunkState.SKIPPED,
    Action.EMPTY: ChunkState.EMPTY,
    Action.STABLE: ChunkState.STABLE,
    Action.NEUTRAL: ChunkState.STABLE,
    Action.COMPACT: ChunkState.UNSTABLE,
}
"""The state of a chunk after each action; neutral chunks are stable."""


def is_unchanged(row: StoredChunk, *, version: str, count: int, digest: str, fp: str) -> bool:
    """Return whether a chunk is unchanged since its row was written, under the same policy."""
    chunk = row.chunk
    return chunk.digest == digest and chunk.count == count and chunk.version == version and row.fp == fp


def analysed(
    before: StoredChunk | None, source: str, chunk: Chunk, fp: str, *, recheck_ms: int | None = None
) -> StoredChunk:
    """Return the row of a chunk that was analysed because it, or a chunk that it shares segments with, changed.

    A quarantined chunk is retried, since the next task reads other data.
    """
    if before is None:
        return StoredChunk(source=source, chunk=chunk, state=STATE_OF[chunk.action], fp=fp, recheck_ms=recheck_ms)
    is_same = is_unchanged(before, version=chunk.version, count=chunk.count, digest=chunk.digest, fp=fp)
    return replace(
        before,
        chunk=chunk,
        state=STATE_OF[chunk.action],
        fp=fp,
        failures=before.failures if is_same else 0,
        quarantined="",
        recheck_ms=recheck_ms,
    )


def given(row: StoredChunk, task: str) -> StoredChunk:
    """Return the row of a chunk that a task includes; a neutral one stays stable."""
    state = ChunkState.UNSTABLE if row.chunk.action is Action.COMPACT else row.state
    return replace(row, state=state, task=task, quarantined="")


def released(row: StoredChunk) -> StoredChunk:
    """Return the row of a chunk whose task ended without an effect on it: it is planned again."""
    return replace(row, task="")


def shed(row: StoredChunk) -> StoredChunk:
    """Return the row of a chunk whose task was shed; a neutral one stays stable."""
    state = ChunkState.DEFERRED if row.chunk.action is Action.COMPACT else row.state
    return replace(row, state=state, task="")


def succeeded(row: StoredChunk, outputs: tuple[int, ...], outputs_fp: str) -> StoredChunk:
    """Return the row of a chunk that a task rewrote into these segments.

    It is analysed once more, since its content changed; ``outputs`` then shows that it is as the task left it.
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
    """Return the row of a chunk on which a task failed finally; it is quarantined after ``failures_max`` in a row."""
    failures = row.failures + 1
    if row.chunk.action is not Action.COMPACT:
        return replace(row, task="", failures=failures)
    if failures < failures_max:
        return replace(row, state=ChunkState.UNSTABLE, task="", failures=failures)
    return replace(row, state=ChunkState.DEFERRED, task="", failures=failures, quarantined=why or "it failed")


def cleared(row: StoredChunk) -> StoredChunk:
    """Return the row of a chunk that an operator released from quarantine: it can be readmitted."""
    return replace(row, failures=0, quarantined="")
