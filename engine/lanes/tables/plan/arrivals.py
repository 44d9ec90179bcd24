"""Place new files in a timeline, and determine what a replaced or dropped interval removes. Pure.

Files are visible whole or not at all. Entries (all visible files of one interval and version) therefore never overlap,
and nothing may hide a part of a file. New files join the entry that their times overlap. If they overlap several, or
extend beyond one, all become one entry: the existing files are restamped, which changes no object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from engine.core.errors import LithifyError
from engine.lanes.tables.plan.model import Segment


class ArrivalRefused(LithifyError):
    """Files cannot be added like this; the message states the reason."""

    code = "arrival_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingFile:
    """A file to add: the caller's ``number`` for it, and its least and greatest time."""

    number: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The position of a file in the timeline; ``number`` is an arriving file's, or the ``key`` of an existing one."""

    number: int
    start_ms: int
    end_ms: int
    version: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Positions of new files, new positions of existing files, and keys of files that become hidden."""

    stamps: tuple[Stamp, ...] = ()
    restamped: tuple[Stamp, ...] = ()
    hidden: tuple[int, ...] = ()


ChunkAt = Callable[[int], tuple[int, int]]
"""Returns the chunk of a time: its start, and its end (exclusive)."""


@dataclass(slots=True)
class _Cluster:
    """Files and entries that overlap each other."""

    start_ms: int
    end_ms: int
    files: list[ArrivingFile]
    segments: list[Segment]


def append_files(files: Sequence[ArrivingFile], visible: Iterable[Segment], chunk_at: ChunkAt, version: str) -> Arrival:
    """Add files to the existing ones.

    ``visible`` must hold every segment that overlaps a chunk of the files, all segments of their entries, and,
    transitively, what these overlap. ``version`` must be above all existing ones.
    """
    existing = list(visible)
    parts = [
        _Cluster(chunk_at(file.first_ms)[0], chunk_at(file.last_ms)[1], [file], [])
        for file in sorted(files, key=attrgetter("first_ms", "number"))
    ]
    parts += [_Cluster(one.start_ms, one.end_ms, [], [one]) for one in existing if not one.is_tombstone]
    tombstones = [one for one in existing if one.is_tombstone]
    arrivals = [_placed(cluster, tombstones, version) for cluster in _joined(parts) if cluster.files]
    return Arrival(
        stamps=tuple(stamp for one in arrivals for stamp in one.stamps),
        restamped=tuple(stamp for one in arrivals for stamp in one.restamped),
    )


def _joined(parts: Sequence[_Cluster]) -> list[_Cluster]:
    """Join overlapping clusters; adjacent ones stay separate."""
    joined: list[_Cluster] = []
    for part in sorted(parts, key=attrgetter("start_ms", "end_ms")):
        if joined and part.start_ms < joined[-1].end_ms:
            last = joined[-1]
            last.end_ms = max(last.end_ms, part.end_ms)
            last.files += part.files
            last.segments += part.segments
        else:
            joined.append(part)
    return joined


def _placed(cluster: _Cluster, tombstones: Sequence[Segment], version: str) -> Arrival:
    start, end = cluster.start_ms, cluster.end_ms
    entries = {(one.start_ms, one.end_ms, one.version) for one in cluster.segments}
    hiding = [one.version for one in tombstones if one.start_ms < end and start < one.end_ms]
    if len(entries) == 1:
        [(entry_start, entry_end, entry_version)] = entries
        if (entry_start, entry_end) == (start, end) and entry_version > max(hiding, default=""):
            first = 1 + max(one.partition for one in cluster.segments)
            return Arrival(stamps=_stamps([file.number for file in cluster.files], start, end, entry_version, first))
    old = sorted(cluster.segments, key=attrgetter("start_ms", "end_ms", "version", "partition"))
    return Arrival(
        restamped=_stamps([one.key for one in old], start, end, version, 0),
        stamps=_stamps([file.number for file in cluster.files], start, end, version, len(old)),
    )


def _stamps(numbers: Sequence[int], start: int, end: int, version: str, first: int) -> tuple[Stamp, ...]:
    return tuple(
        Stamp(number=number, start_ms=start, end_ms=end, version=version, partition=first + place)
        for place, number in enumerate(numbers)
    )


def replace_interval(
    files: Sequence[ArrivingFile],
    visible: Iterable[Segment],
    interval: tuple[int, int],
    chunk_at: ChunkAt,
    version: str,
) -> Arrival:
    """Add files in place of everything within ``interval``; without files the caller can only add a tombstone.

    Raises ArrivalRefused unless the interval consists of whole chunks, contains all rows, and cuts no file.
    """
    start, end = interval
    check_interval(interval, chunk_at)
    for file in files:
        if file.first_ms < start or file.last_ms >= end:
            raise ArrivalRefused(
                f"file {file.number} has rows from {file.first_ms} to {file.last_ms}, outside the interval "
                f"[{start}, {end})"
            )
    hidden = []
    for one in visible:
        if one.end_ms <= start or end <= one.start_ms:
            continue
        if start <= one.start_ms and one.end_ms <= end:
            hidden.append(one.key)
        elif not one.is_tombstone:
            raise ArrivalRefused(
                f"the interval [{start}, {end}) cuts a file of [{one.start_ms}, {one.end_ms}): files are visible "
                "whole or not at all; widen the interval, or wait until compaction has cut that file"
            )
    numbers = [file.number for file in files]
    return Arrival(stamps=_stamps(numbers, start, end, version, 0), hidden=tuple(sorted(hidden)))


def check_interval(interval: tuple[int, int], chunk_at: ChunkAt) -> None:
    """Raise ArrivalRefused unless an interval consists of whole chunks."""
    start, end = interval
    if start >= end:
        raise ArrivalRefused(f"the interval [{start}, {end}) ends before it starts")
    if chunk_at(start)[0] != start:
        raise ArrivalRefused(
            f"the interval starts within a chunk, at {start}: the chunk starts at {chunk_at(start)[0]}"
        )
    if chunk_at(end - 1)[1] != end:
        raise ArrivalRefused(f"the interval ends within a chunk, at {end}: the chunk ends at {chunk_at(end - 1)[1]}")
