"""Where new files come into a timeline, and what an interval that is replaced or dropped takes away; pure.

Files are seen whole or not at all. Therefore entries (all visible files of one interval and version) never overlap, and
nothing may hide a part of a file. New files join the entry whose time they touch; if they touch several, or reach
beyond one, these become one entry over all of it: files are stamped anew, which changes no object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from engine.core.errors import LithifyError
from engine.lanes.tables.plan.model import Segment


class ArrivalRefused(LithifyError):
    """Files cannot come in like this; the message says why."""

    code = "arrival_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingFile:
    """A file that is to come in: the caller's ``number`` for it, and the least and greatest time in it."""

    number: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Where a file stands in the timeline; ``number`` is an arriving file's, or the ``key`` of one that is there."""

    number: int
    start_ms: int
    end_ms: int
    version: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What comes in and where, which files that are there are stamped anew, and which are not seen any more."""

    stamps: tuple[Stamp, ...] = ()
    restamped: tuple[Stamp, ...] = ()
    hidden: tuple[int, ...] = ()


ChunkAt = Callable[[int], tuple[int, int]]
"""The chunk that a time lies in: its first instant, and the first after it."""


@dataclass(slots=True)
class _Cluster:
    """Files and entries that touch each other."""

    start_ms: int
    end_ms: int
    files: list[ArrivingFile]
    segments: list[Segment]


def append_files(files: Sequence[ArrivingFile], visible: Iterable[Segment], chunk_at: ChunkAt, version: str) -> Arrival:
    """Bring files in beside what is there. ``visible`` holds every segment that overlaps a chunk they touch, and with
    a segment all of its entry, and what touches that in turn; ``version`` is above all that are there."""
    there = list(visible)
    parts = [
        _Cluster(chunk_at(file.first_ms)[0], chunk_at(file.last_ms)[1], [file], [])
        for file in sorted(files, key=attrgetter("first_ms", "number"))
    ]
    parts += [_Cluster(one.start_ms, one.end_ms, [], [one]) for one in there if not one.is_tombstone]
    tombstones = [one for one in there if one.is_tombstone]
    arrivals = [_placed(cluster, tombstones, version) for cluster in _joined(parts) if cluster.files]
    return Arrival(
        stamps=tuple(stamp for one in arrivals for stamp in one.stamps),
        restamped=tuple(stamp for one in arrivals for stamp in one.restamped),
    )


def _joined(parts: Sequence[_Cluster]) -> list[_Cluster]:
    """Join what overlaps; what only abuts stays apart."""
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
    above = max((one.version for one in tombstones if one.start_ms < end and start < one.end_ms), default="")
    if len(entries) == 1:
        [(entry_start, entry_end, entry_version)] = entries
        if (entry_start, entry_end) == (start, end) and entry_version > above:
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
    """Bring files in, in the place of everything within ``interval``; without files only a tombstone can be put there.

    Raises ArrivalRefused unless the interval consists of whole chunks, all rows lie in it, and it cuts no file.
    """
    start, end = interval
    check_interval(interval, chunk_at)
    for file in files:
        if file.first_ms < start or file.last_ms >= end:
            raise ArrivalRefused(
                f"file {file.number} has rows from {file.first_ms} to {file.last_ms}: not all within the interval "
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
                f"the interval [{start}, {end}) cuts a file of [{one.start_ms}, {one.end_ms}): files are seen whole or "
                "not at all; widen the interval, or wait until compaction has cut that file"
            )
    numbers = [file.number for file in files]
    return Arrival(stamps=_stamps(numbers, start, end, version, 0), hidden=tuple(sorted(hidden)))


def check_interval(interval: tuple[int, int], chunk_at: ChunkAt) -> None:
    """Raise ArrivalRefused unless an interval consists of whole chunks."""
    start, end = interval
    if start >= end:
        raise ArrivalRefused(f"the interval [{start}, {end}) ends before it begins")
    if chunk_at(start)[0] != start:
        raise ArrivalRefused(
            f"the interval begins within a chunk, at {start}: the chunk begins at {chunk_at(start)[0]}"
        )
    if chunk_at(end - 1)[1] != end:
        raise ArrivalRefused(f"the interval ends within a chunk, at {end}: the chunk ends at {chunk_at(end - 1)[1]}")
