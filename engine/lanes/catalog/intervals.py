"""Unions of key intervals, and lookup of the interval that contains a key."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from engine.formats.ranges.model import Interval


def union_of(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the union as ascending intervals that neither overlap nor touch; empty ones are left out."""
    united: list[Interval] = []
    for start, end in sorted(intervals, key=lambda interval: interval[0]):
        if end is not None and end <= start:
            continue
        if united and _reaches(united[-1][1], start):
            united[-1] = (united[-1][0], _later(united[-1][1], end))
        else:
            united.append((start, end))
    return tuple(united)


def interval_of(intervals: Sequence[Interval], key: bytes) -> Interval | None:
    """Return the interval of an ascending union that contains the key, None if there is none."""
    at = bisect_right(intervals, key, key=lambda interval: interval[0]) - 1
    if at < 0:
        return None
    end = intervals[at][1]
    return intervals[at] if end is None or key < end else None


def _reaches(end: bytes | None, start: bytes) -> bool:
    return end is None or end >= start


def _later(left: bytes | None, right: bytes | None) -> bytes | None:
    return None if left is None or right is None else max(left, right)
