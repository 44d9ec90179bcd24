"""Decide per chunk whether a task's outputs may replace its sources, although data may have arrived meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from engine.lanes.tables.plan.columns import columns, mixed, text_hashes
from engine.lanes.tables.plan.model import Chunk, Piece, Segment
from engine.lanes.tables.plan.visibility import version_above, visible
from engine.schedule.errors import SnapshotRefused

UNKNOWN_SIZE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChunk:
    """A chunk as it was planned: ``keys`` are all segments that were visible in it, tombstones included.

    ``shared`` are those with data that were visible in other chunks as well.
    """

    start_ms: int
    end_ms: int
    digest: str
    keys: tuple[int, ...]
    shared: tuple[int, ...] = ()

    @classmethod
    def of(cls, chunk: Chunk) -> PlannedChunk:
        return cls(
            start_ms=chunk.start_ms, end_ms=chunk.end_ms, digest=chunk.digest, keys=chunk.keys, shared=chunk.shared
        )


class CommitAction(StrEnum):
    """The decision about a task's outputs in one chunk."""

    PUBLISH = "publish"
    CARRY_OVER = "carry-over"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCommit:
    """The commit of one chunk, and the reason.

    Outputs get the interval of the whole chunk and ``version``. Segments in ``carried`` arrived meanwhile: they get the
    same interval and version, with the next partitions, and stay visible beside the outputs.
    """

    start_ms: int
    end_ms: int
    action: CommitAction
    reason: str
    version: str = ""
    carried: tuple[int, ...] = ()


def decide_commit(
    planned: PlannedChunk,
    segments: Sequence[Segment],
    *,
    now_ms: int,
    carries_over: bool = True,
    given_up: Collection[int] = (),
) -> ChunkCommit:
    """Decide the commit of one chunk; ``segments`` are all that overlap it now, in any order.

    ``carries_over``: segments can be given another version. Keys in ``given_up`` belong to entries that stayed
    incomplete for too long to wait for; above other incomplete entries nothing is published.
    """
    try:
        pieces, waiting = pieces_within(segments, planned.start_ms, planned.end_ms)
    except SnapshotRefused as error:
        return _abort(planned, f"the timeline is inconsistent: {error}")
    if awaited := sorted(set(waiting) - set(given_up) - set(planned.keys)):
        return _abort(planned, f"segment {awaited[0]} waits for other segments of its version, which would be hidden")
    ours = frozenset(planned.keys)
    if digest_of([piece for piece in pieces if piece.segment.key in ours]) != planned.digest:
        return _abort(planned, "planned segments were removed or hidden" if planned.keys else "data arrived in it")
    late = {piece.segment.key: piece.segment for piece in pieces if piece.segment.key not in ours}
    version = version_above(now_ms, (one.version for one in segments))
    if not late:
        return ChunkCommit(
            start_ms=planned.start_ms,
            end_ms=planned.end_ms,
            action=CommitAction.PUBLISH,
            reason="nothing changed in it",
            version=version,
        )
    if why := _not_carried(planned, pieces, late.values(), carries_over=carries_over):
        return _abort(planned, why)
    return ChunkCommit(
        start_ms=planned.start_ms,
        end_ms=planned.end_ms,
        action=CommitAction.CARRY_OVER,
        reason=f"{len(late)} segments arrived meanwhile and stay beside the outputs",
        version=version,
        carried=tuple(sorted(late)),
    )


def decide_commits(
    planned: Sequence[PlannedChunk],
    segments: Mapping[int, Sequence[Segment]],
    *,
    now_ms: int,
    partial_visibility: bool,
    carries_over: bool = True,
    given_up: Collection[int] = (),
) -> list[ChunkCommit]:
    """Decide the commits of a task's chunks, given in time order; ``segments`` maps starts of chunks to segments.

    Where files are visible whole or not at all, chunks that share one are published together or not at all.
    """
    found = [
        decide_commit(chunk, segments[chunk.start_ms], now_ms=now_ms, carries_over=carries_over, given_up=given_up)
        for chunk in planned
    ]
    return found if partial_visibility else _all_or_none(planned, found)


def _all_or_none(planned: Sequence[PlannedChunk], found: Sequence[ChunkCommit]) -> list[ChunkCommit]:
    group_of = tied_groups(planned)
    causes: dict[int, ChunkCommit] = {}
    for group, commit in zip(group_of, found, strict=True):
        if commit.action is CommitAction.ABORT:
            causes.setdefault(group, commit)
    return [
        _abort(chunk, f"it shares a segment with a chunk that cannot be published: {causes[group].reason}")
        if group in causes and commit.action is not CommitAction.ABORT
        else commit
        for chunk, group, commit in zip(planned, group_of, found, strict=True)
    ]


def tied_groups(planned: Sequence[PlannedChunk]) -> list[int]:
    """Return the group number of each chunk: chunks that share a segment, directly or transitively, are one group."""
    leader = list(range(len(planned)))

    def find(place: int) -> int:
        while leader[place] != place:
            place = leader[place] = leader[leader[place]]
        return place

    holder: dict[int, int] = {}
    for place, chunk in enumerate(planned):
        for key in chunk.shared:
            leader[find(place)] = find(holder.setdefault(key, place))
    return [find(place) for place in range(len(planned))]


def pieces_within(segments: Sequence[Segment], start_ms: int, end_ms: int) -> tuple[list[Piece], tuple[int, ...]]:
    """Return the visible pieces within an interval, and the segments of incomplete entries.

    All segments must overlap the interval. Raises SnapshotRefused for invalid or contradicting segments.
    """
    seen = visible(columns(segments))
    found: list[Piece] = []
    for entry, start, end in zip(
        seen.stretch_entry.tolist(), seen.stretch_start.tolist(), seen.stretch_end.tolist(), strict=True
    ):
        first, last = max(start, start_ms), min(end, end_ms)
        if first < last:
            at = int(seen.first[entry])
            members = seen.columns.segments[at : at + int(seen.count[entry])]
            found += [Piece(segment=one, start_ms=first, end_ms=last) for one in members]
    return found, seen.incomplete


def digest_of(pieces: Iterable[Piece]) -> str:
    """Return the digest of the pieces visible in a chunk: 16 hexadecimal digits, independent of order."""
    entries: dict[tuple[int, int, str, int, int], list[Segment]] = {}
    for piece in pieces:
        one = piece.segment
        entries.setdefault((one.start_ms, one.end_ms, one.version, piece.start_ms, piece.end_ms), []).append(one)
    if not entries:
        return f"{0:016x}"
    every = [one for members in entries.values() for one in members]
    hashes = mixed(
        np.array([one.key for one in every]),
        np.array([one.partition for one in every]),
        np.array([UNKNOWN_SIZE if one.size_bytes is None else one.size_bytes for one in every]),
        np.array([one.is_tombstone for one in every], np.int64),
    )
    bounds = np.cumsum([0, *(len(members) for members in entries.values())])[:-1]
    starts, ends, versions, firsts, lasts = zip(*entries, strict=True)
    of_entry = mixed(np.add.reduceat(hashes, bounds), np.array(starts), np.array(ends), text_hashes(versions))
    total = np.add.reduce(mixed(of_entry, np.array(firsts), np.array(lasts)))
    return f"{int(total):016x}"


def _not_carried(
    planned: PlannedChunk, pieces: Iterable[Piece], late: Collection[Segment], *, carries_over: bool
) -> str:
    """Return why segments that arrived meanwhile cannot be kept beside the outputs, "" if they can."""
    ours = frozenset(planned.keys)
    versions = {piece.segment.version for piece in pieces if piece.segment.key in ours}
    for one in sorted(late, key=lambda one: one.key):
        if one.is_tombstone:
            return f"tombstone {one.key} arrived meanwhile"
        if one.version not in versions:
            return f"segment {one.key} arrived meanwhile with another version, {one.version!r}"
        if one.start_ms < planned.start_ms or one.end_ms > planned.end_ms:
            return f"segment {one.key} arrived meanwhile and extends into other chunks"
    if not carries_over:
        return f"{len(late)} segments arrived meanwhile, and segments here cannot be given another version"
    return ""


def _abort(planned: PlannedChunk, why: str) -> ChunkCommit:
    return ChunkCommit(start_ms=planned.start_ms, end_ms=planned.end_ms, action=CommitAction.ABORT, reason=why)
