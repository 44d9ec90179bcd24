"""Three-way merges of states: merge, revert and cherry-pick. They read commits only, never staged changes.

Ranges that only the source changed are taken over without being read. Everything else is compared by key.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.core.errors import LithifyError
from engine.formats.ranges.layout import SplitRules
from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import Entry, Row, prefix_end
from engine.formats.ranges.range_file import FileInfo
from engine.lanes.catalog.apply import apply_layers
from engine.lanes.catalog.diff import Change, diff_states, without_common
from engine.lanes.catalog.intervals import union_of
from engine.lanes.catalog.runs import Layer, spooled_run
from engine.lanes.catalog.state_reader import AscendingLookup, StateReader

CONFLICT_KEYS_MAX = 100


class MergeConflict(LithifyError):
    """Source and destination changed the same keys differently; ``keys`` holds the first of ``count`` conflicts."""

    code = "merge_conflict"

    def __init__(self, keys: Sequence[bytes], count: int) -> None:
        super().__init__(tuple(keys), count)
        self.keys = tuple(keys)
        self.count = count

    def __str__(self) -> str:
        first = ", ".join(repr(key.decode("utf-8", "backslashreplace")) for key in self.keys[:3])
        return f"{self.count} keys were changed on both sides, the first: {first}"


class Side(enum.Enum):
    """Which side wins where both changed a key."""

    SOURCE = "source-wins"
    DESTINATION = "dest-wins"


@dataclass(frozen=True, slots=True)
class Compared:
    """A key that the source changed since the base, with the destination's entry.

    It is a conflict if the destination changed the key to another value.
    """

    change: Change
    destination: Entry | None
    is_conflict: bool


Resolver = Callable[[Compared], Side | None]
"""Returns the side that wins, or None to leave the decision to the next resolver."""


def compare(
    destination: StateReader, source: StateReader, base: StateReader, start: bytes = b"", end: bytes | None = None
) -> Iterator[Compared]:
    """Yield the changes that a merge of the source into the destination makes in a key range, with their conflicts."""
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

    This is the destination's own metarange if nothing changes, and the source's if the destination is the base. The
    first resolver that returns a side decides a conflict, then the strategy. Raises MergeConflict if a conflict is
    undecided.
    """
    if source.metarange.id == base.metarange.id or source.metarange.id == destination.metarange.id:
        return destination.metarange
    if destination.metarange.id == base.metarange.id:
        return source.metarange
    taken = _take_ranges(destination.metarange, source.metarange, base.metarange)
    rows = _resolved_rows(
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
class _TakenOver:
    """The destination's ranges after the take-over of ranges, and those left to compare by key."""

    ranges: tuple[FileInfo, ...]
    base_left: list[FileInfo]
    source_left: list[FileInfo]
    is_any: bool


def _take_ranges(destination: Metarange, source: Metarange, base: Metarange) -> _TakenOver:
    ours = {info.id for info in destination.ranges}
    base_only, source_only = without_common(base, source)
    removed: set[str] = set()
    added: list[FileInfo] = []
    base_left: list[FileInfo] = []
    source_left: list[FileInfo] = []
    for old, new in _overlap_groups(base_only, source_only):
        first = min(info.first_key for info in (*old, *new))
        last = max(info.last_key for info in (*old, *new))
        here = destination.ranges[destination.range_of(first) :]
        touching = {info.id for info in _until(here, last)}
        if touching == {info.id for info in old} and touching <= ours:
            removed |= touching
            added += new
        else:
            base_left += old
            source_left += new
    kept = [info for info in destination.ranges if info.id not in removed]
    ranges = sorted((*kept, *added), key=lambda info: info.first_key)
    return _TakenOver(tuple(ranges), base_left, source_left, bool(removed or added))


def _overlap_groups(
    base_only: Sequence[FileInfo], source_only: Sequence[FileInfo]
) -> Iterator[tuple[list[FileInfo], list[FileInfo]]]:
    """Yield groups of overlapping ranges of both; no other range of either state overlaps a group."""
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


def _resolved_rows(compared: Iterable[Compared], resolvers: Sequence[Resolver]) -> Iterator[Row]:
    """Yield the rows that the source's changes put into the destination. Raises MergeConflict at the end."""
    conflicts: list[bytes] = []
    count = 0
    for each in compared:
        side: Side | None = Side.SOURCE
        if each.is_conflict:
            choices = (resolver(each) for resolver in resolvers)
            side = next((choice for choice in choices if choice is not None), None)
        if side is None:
            count += 1
            conflicts += [each.change.key] if count <= CONFLICT_KEYS_MAX else []
        elif side is Side.SOURCE:
            yield each.change.after or (each.change.key, b"", b"")
    if count:
        raise MergeConflict(conflicts, count)


def _is_same(left: Entry | None, right: Entry | None) -> bool:
    return (left.identity if left else None) == (right.identity if right else None)
