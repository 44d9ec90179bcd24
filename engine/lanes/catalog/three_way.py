"""Three-way merges of states: merge, revert and cherry-pick. They know commits only, never what is staged.

What only the source changed, in ranges that the destination has as the common base had them, is taken over as ranges,
unread. Everything else is compared key by key.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.formats.ranges.layout import SplitRules
from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import Entry, Row, prefix_end
from engine.formats.ranges.range_file import FileInfo
from engine.lanes.catalog.apply import apply_layers
from engine.lanes.catalog.diff import Change, diff_states, without_common
from engine.lanes.catalog.errors import MergeConflict
from engine.lanes.catalog.intervals import union_of
from engine.lanes.catalog.runs import Layer, spooled_run
from engine.lanes.catalog.state_reader import AscendingLookup, StateReader

CONFLICTS_TOLD = 100


class Side(enum.Enum):
    """Whose value stays where both sides changed a key."""

    SOURCE = "source-wins"
    DESTINATION = "dest-wins"


@dataclass(frozen=True, slots=True)
class Compared:
    """A key that the source changed since the base, with the destination's entry.

    It conflicts if the destination changed it too, otherwise.
    """

    change: Change
    destination: Entry | None
    is_conflict: bool


Resolver = Callable[[Compared], Side | None]
"""Says whose value stays, or None if it has no opinion."""


def compare(
    destination: StateReader, source: StateReader, base: StateReader, start: bytes = b"", end: bytes | None = None
) -> Iterator[Compared]:
    """Yield what merging the source into the destination would change in a stretch, and where they conflict."""
    entries = AscendingLookup(destination)
    for change in diff_states(base, source, start, end):
        theirs = entries.get(change.key)
        if _is_same(theirs, change.after):
            continue
        yield Compared(change, theirs, not _is_same(theirs, change.before))


def merge_states(
    destination: StateReader,
    source: StateReader,
    base: StateReader,
    *,
    resolvers: Sequence[Resolver] = (),
    strategy: Side | None = None,
    rules: SplitRules | None = None,
) -> Metarange:
    """Return the destination with what the source changed since the base.

    It is the destination's own metarange if there is nothing to change, and the source's if the destination is the
    base. Where both changed a key the first resolver with an opinion decides, then the strategy; without one
    MergeConflict is raised and nothing is published.
    """
    if source.metarange.id == base.metarange.id or source.metarange.id == destination.metarange.id:
        return destination.metarange
    if destination.metarange.id == base.metarange.id:
        return source.metarange
    taken = _take_ranges(destination.metarange, source.metarange, base.metarange)
    rows = _decided(
        compare(destination, source.over(taken.source_left), base.over(taken.base_left)),
        (*resolvers, lambda _: strategy),
    )
    files = destination.files
    merged = Metarange(id=destination.metarange.id if not taken.is_any else "", ranges=taken.ranges)
    with spooled_run(rows) as run:
        result = apply_layers(files, merged, [Layer(run)], rules=rules).metarange
    return result if result.id else files.write_metarange(result.ranges)[0]


def revert_state(
    head: StateReader, reverted: StateReader, parent: StateReader, *, strategy: Side | None = None
) -> Metarange:
    """Return the head without what a commit changed against its parent."""
    return merge_states(head, parent, reverted, strategy=strategy)


def cherry_pick_state(
    head: StateReader, picked: StateReader, parent: StateReader, *, strategy: Side | None = None
) -> Metarange:
    """Return the head with what a commit changed against its parent."""
    return merge_states(head, picked, parent, strategy=strategy)


def import_rows(
    destination: StateReader,
    prefixes: Iterable[bytes],
    rows: Iterable[Row],
    *,
    keys: Iterable[bytes] = (),
    rules: SplitRules | None = None,
) -> Metarange:
    """Return the destination with all keys under the prefixes, and these keys, replaced by ascending rows."""
    intervals = union_of(
        [*((prefix, prefix_end(prefix)) for prefix in prefixes), *((key, key + b"\0") for key in keys)]
    )
    with spooled_run(rows) as run:
        layers = [Layer(run, intervals)]
        return apply_layers(destination.files, destination.metarange, layers, rules=rules).metarange


@dataclass(frozen=True, slots=True)
class _Taken:
    """The destination's ranges after taking over ranges, and those that are left to be compared by key."""

    ranges: tuple[FileInfo, ...]
    base_left: list[FileInfo]
    source_left: list[FileInfo]
    is_any: bool


def _take_ranges(destination: Metarange, source: Metarange, base: Metarange) -> _Taken:
    ours = {info.id for info in destination.ranges}
    base_only, source_only = without_common(base, source)
    gone: set[str] = set()
    came: list[FileInfo] = []
    base_left: list[FileInfo] = []
    source_left: list[FileInfo] = []
    for old, new in _stretches(base_only, source_only):
        first = min(info.first_key for info in (*old, *new))
        last = max(info.last_key for info in (*old, *new))
        here = destination.ranges[destination.range_of(first) :]
        touching = {info.id for info in _until(here, last)}
        if touching == {info.id for info in old} and touching <= ours:
            gone |= touching
            came += new
        else:
            base_left += old
            source_left += new
    kept = [info for info in destination.ranges if info.id not in gone]
    ranges = sorted((*kept, *came), key=lambda info: info.first_key)
    return _Taken(tuple(ranges), base_left, source_left, bool(gone or came))


def _stretches(
    base_only: Sequence[FileInfo], source_only: Sequence[FileInfo]
) -> Iterator[tuple[list[FileInfo], list[FileInfo]]]:
    """Yield ranges of both that overlap each other, together: no other range of either state reaches into them."""
    tagged = sorted(
        [(info.first_key, 0, info) for info in base_only] + [(info.first_key, 1, info) for info in source_only],
        key=lambda each: each[:2],
    )
    sides: tuple[list[FileInfo], list[FileInfo]] = ([], [])
    reach: bytes | None = None
    for first_key, side, info in tagged:
        if reach is not None and first_key > reach:
            yield sides
            sides, reach = ([], []), None
        sides[side].append(info)
        reach = info.last_key if reach is None else max(reach, info.last_key)
    if reach is not None:
        yield sides


def _until(ranges: Sequence[FileInfo], last: bytes) -> Iterator[FileInfo]:
    for info in ranges:
        if info.first_key > last:
            return
        yield info


def _decided(compared: Iterable[Compared], resolvers: Sequence[Resolver]) -> Iterator[Row]:
    """Yield the rows that the source's changes put into the destination; MergeConflict at the end if there is one."""
    conflicts: list[bytes] = []
    count = 0
    for each in compared:
        side: Side | None = Side.SOURCE
        if each.is_conflict:
            opinions = (resolver(each) for resolver in resolvers)
            side = next((opinion for opinion in opinions if opinion is not None), None)
        if side is None:
            count += 1
            conflicts += [each.change.key] if count <= CONFLICTS_TOLD else []
        elif side is Side.SOURCE:
            yield each.change.after or (each.change.key, b"", b"")
    if count:
        raise MergeConflict(conflicts, count)


def _is_same(left: Entry | None, right: Entry | None) -> bool:
    return (left.identity if left else None) == (right.identity if right else None)
