"""Compare two states, and a branch with its head commit."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import Entry, Row
from engine.formats.ranges.range_file import FileInfo
from engine.lanes.catalog.intervals import interval_of
from engine.lanes.catalog.overlay import Overlay
from engine.lanes.catalog.state_reader import AscendingLookup, StateReader


@dataclass(frozen=True, slots=True)
class Change:
    """A key's entries before and after. At least one exists, and their identities differ."""

    key: bytes
    before: Entry | None
    after: Entry | None

    @property
    def kind(self) -> str:
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def diff_states(
    left: StateReader, right: StateReader, start: bytes = b"", end: bytes | None = None
) -> Iterator[Change]:
    """Yield the differences for keys from ``start`` up to ``end`` (exclusive).

    Ranges that both states have are not read: they hold the same entries, and no other range of either overlaps them.
    """
    ours, theirs = without_common(left.metarange, right.metarange)
    lefts, rights = left.over(ours).scan(start, end), right.over(theirs).scan(start, end)
    before, after = next(lefts, None), next(rights, None)
    while before is not None or after is not None:
        if after is None or (before is not None and before.key < after.key):
            assert before is not None
            yield Change(before.key, before, None)
            before = next(lefts, None)
        elif before is None or after.key < before.key:
            yield Change(after.key, None, after)
            after = next(rights, None)
        else:
            if before.identity != after.identity:
                yield Change(after.key, before, after)
            before, after = next(lefts, None), next(rights, None)


Differences = Callable[[StateReader, StateReader, bytes, bytes | None], Iterable[Change]]
"""Yields the differences of two states in a key range, like ``diff_states``."""


def diff_uncommitted(
    overlay: Overlay,
    committed: StateReader,
    snapshot: StateReader | None = None,
    start: bytes = b"",
    end: bytes | None = None,
    differences: Differences = diff_states,
) -> Iterator[Change]:
    """Yield the differences between what is visible on a branch and its head commit.

    Values are compared: a row of the overlay hides a change of the snapshot even if its value equals the commit's. Read
    errors propagate, so a list is either complete or an error. ``differences`` compares commit and snapshot; callers
    may pass a cached comparison.
    """
    entries = AscendingLookup(committed)
    folded = differences(committed, snapshot, start, end) if snapshot else ()
    for key, row, changed in _candidates(overlay, committed, folded, start, end):
        if row is None and interval_of(overlay.covered, key) is None:
            if changed is not None:
                yield changed
            continue
        before = changed.before if changed else entries.get(key)
        after = Entry(*row) if row and row[1] else None
        if (before.identity if before else None) != (after.identity if after else None):
            yield Change(key, before, after)


def reset_rows(changes: Iterable[Change]) -> Iterator[Row]:
    """Yield the rows that undo uncommitted changes when staged under a new token."""
    for change in changes:
        yield change.before or (change.key, b"", b"")


def _candidates(
    overlay: Overlay, committed: StateReader, changes: Iterable[Change], start: bytes, end: bytes | None
) -> Iterator[tuple[bytes, Row | None, Change | None]]:
    """Yield the keys that may differ, each with the overlay's row and the snapshot's change."""
    staged = ((row[0], 0, row, None) for row in overlay.scan(start, end))
    folded = ((each.key, 1, None, each) for each in changes)
    covered = ((key, 2, None, None) for key in _covered_keys(overlay, committed, start, end))
    key, row, changed = None, None, None
    for found, _, its_row, its_change in heapq.merge(staged, folded, covered, key=lambda each: each[:2]):
        if key is not None and found != key:
            yield key, row, changed
            row = changed = None
        key, row, changed = found, row or its_row, changed or its_change
    if key is not None:
        yield key, row, changed


def _covered_keys(overlay: Overlay, committed: StateReader, start: bytes, end: bytes | None) -> Iterator[bytes]:
    for first, stop in overlay.covered:
        last = end if stop is None else stop if end is None else min(end, stop)
        if last is None or max(start, first) < last:
            yield from (entry.key for entry in committed.scan(max(start, first), last))


def without_common(left: Metarange, right: Metarange) -> tuple[list[FileInfo], list[FileInfo]]:
    """Return the ranges of each state that the other does not have."""
    common = {info.id for info in left.ranges} & {info.id for info in right.ranges}
    return [each for each in left.ranges if each.id not in common], [
        each for each in right.ranges if each.id not in common
    ]
