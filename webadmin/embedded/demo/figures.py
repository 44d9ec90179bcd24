"""Figures of the demonstration before and after compaction. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.lanes.profiles.jobs import DeleteMask

NAME_LENGTH_MAX = 44  # Leaves room for five columns of numbers on a usual terminal.
UNITS = ("B", "KB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBlock:
    """A block that queries read: the location of its object and its index entry.

    ``visible`` are the positions of the datasets in the index, each with the delete masks to apply.
    """

    key: str
    level: int
    size: int
    metadata: bytes
    visible: Mapping[int, Sequence[DeleteMask]]


@dataclass(frozen=True, slots=True)
class LevelTotal:
    """Objects and bytes of one level."""

    objects: int = 0
    bytes: int = 0


def totals_by_level(blocks: Iterable[LiveBlock]) -> dict[int, LevelTotal]:
    """Return objects and bytes per level, lowest first; levels without blocks are omitted."""
    totals: dict[int, LevelTotal] = {}
    for block in blocks:
        old = totals.get(block.level, LevelTotal())
        totals[block.level] = LevelTotal(old.objects + 1, old.bytes + block.size)
    return dict(sorted(totals.items()))


def total(levels: dict[int, LevelTotal]) -> LevelTotal:
    """Return the sum over all levels."""
    return LevelTotal(sum(one.objects for one in levels.values()), sum(one.bytes for one in levels.values()))


def size_text(size: int) -> str:
    """Return a formatted size, in powers of 1000: ``12.3 MB``."""
    amount = float(size)
    for unit in UNITS:
        if amount < 1000 or unit == UNITS[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("unreachable: the last unit takes everything")


def seconds_text(seconds: float) -> str:
    """Return a formatted duration, in milliseconds below a second."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def value_text(value: int, unit: str) -> str:
    """Return a formatted profile value: nanoseconds as seconds, bytes as bytes, the rest as a number."""
    if unit == "nanoseconds":
        return f"{value / 1e9:.2f} s"
    return size_text(value) if unit == "bytes" else f"{value:,}"


def name_text(name: str) -> str:
    """Return a function's name for display; of a long name the end, which is more specific than the package path."""
    return name if len(name) <= NAME_LENGTH_MAX else f"…{name[1 - NAME_LENGTH_MAX :]}"


def differences(before: Sequence[object], after: Sequence[object]) -> list[int]:
    """Return the positions at which two results differ, including those that only the longer one has."""
    longest = max(len(before), len(after))
    return [i for i in range(longest) if i >= len(before) or i >= len(after) or before[i] != after[i]]
