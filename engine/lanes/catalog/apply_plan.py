"""Plan which ranges an application of layers to a metarange rewrites.

The plan is pure: it is the same however many workers execute it. Ranges that no change touches are kept. Neighbouring
changed ranges are rewritten together in *units*. The borders of units are borders of ranges or, where there are no
ranges, keys chosen by their hash, so a unit's files depend on nothing but the unit. Small ranges beside changed ones
are merged into them when that is cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.formats.ranges.entry_blocks import spread_rows
from engine.formats.ranges.layout import SplitRules
from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import Interval
from engine.lanes.catalog.intervals import union_of
from engine.lanes.catalog.runs import Layer

UNIT_BYTES = 16 << 20
FAN_OUT = 4
"""Limits the rewriting of small neighbours, so that an entry is rewritten a logarithmic number of times.

Neighbours are merged if there are at least this many, less one, that are no larger than what is written anyway, or if
their sum is at most this fraction of it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A key range, ``after`` exclusive, ``upto`` inclusive, with the base ranges ``first`` to ``end`` (exclusive)."""

    first: int
    end: int
    after: bytes | None
    upto: bytes | None
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlan:
    """Units to write; ``kept`` and ``dropped`` are indexes of ranges of the base."""

    units: tuple[Unit, ...]
    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    rows: int

    @property
    def size(self) -> int:
        """Return the estimated bytes of entries to read, from ranges and changes."""
        return sum(unit.size for unit in self.units)


def plan_apply(
    base: Metarange, layers: Sequence[Layer], rules: SplitRules | None = None, unit_bytes: int = UNIT_BYTES
) -> ApplyPlan:
    """Plan the application of layers (newest first). Reads the keys of all layers once and nothing of the base."""
    rules = rules or SplitRules()
    slots = _Slots(base)
    for layer in layers:
        spread, borders = spread_rows(layer.run.blocks(), slots.firsts, base.last_keys, rules.border)
        slots.add(spread, borders)
    slots.cover(union_of(interval for layer in layers for interval in layer.intervals))
    _absorb_neighbours(slots, rules)
    units = tuple(unit for run in slots.touched_runs() for unit in _units_of(slots, run, unit_bytes))
    written = {number for unit in units for number in range(unit.first, unit.end)}
    kept = (number for number in range(len(base.ranges)) if number not in written and number not in slots.dropped)
    return ApplyPlan(units=units, kept=tuple(kept), dropped=tuple(sorted(slots.dropped)), rows=slots.rows)


@dataclass(slots=True)
class _Slots:
    """The ranges of a base (range i is slot 2i+1) and the gaps around them (even slots), with the changes in each."""

    base: Metarange
    firsts: list[bytes] = field(init=False)
    sizes: dict[int, int] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    borders: dict[int, set[bytes]] = field(default_factory=dict)
    rows: int = 0

    def __post_init__(self) -> None:
        self.firsts = self.base.first_keys

    def add(self, spread: dict[int, tuple[int, int, int]], borders: Iterable[bytes]) -> None:
        for slot, (rows, values, size) in spread.items():
            self.rows += rows
            self.sizes[slot] = self.sizes.get(slot, 0) + size
            if slot % 2 or values:
                self.touched.add(slot)
        for key in borders:
            self.borders.setdefault(2 * self.base.range_of(key), set()).add(key)

    def cover(self, intervals: Sequence[Interval]) -> None:
        """Drop ranges inside an interval without changes, and mark ranges partly inside an interval as touched."""
        for start, end in intervals:
            for number in range(self.base.range_of(start), len(self.base.ranges)):
                info = self.base.ranges[number]
                if end is not None and end <= info.first_key:
                    break
                is_inside = start <= info.first_key and (end is None or info.last_key < end)
                if is_inside and 2 * number + 1 not in self.touched:
                    self.dropped.add(number)
                else:
                    self.touched.add(2 * number + 1)

    def size_of(self, slot: int) -> int:
        """Return the bytes of a slot: its range and the changes in it."""
        return self.sizes.get(slot, 0) + (self.base.ranges[slot // 2].size if slot % 2 else 0)

    def is_free(self, number: int) -> bool:
        """Return whether the base has this range and it is neither dropped nor touched."""
        return 0 <= number < len(self.base.ranges) and not (number in self.dropped or 2 * number + 1 in self.touched)

    def touched_runs(self) -> list[list[int]]:
        """Return runs of touched slots; slots with no range between them belong to one run."""
        runs: list[list[int]] = []
        for slot in sorted(self.touched):
            if runs and (slot == runs[-1][-1] + 1 or (slot % 2 and slot == runs[-1][-1] + 2)):
                runs[-1].append(slot)
            else:
                runs.append([slot])
        return runs


def _absorb_neighbours(slots: _Slots, rules: SplitRules) -> None:
    """Mark small ranges beside each run of touched slots as touched where rewriting them is worth it."""
    for run in slots.touched_runs():
        size = sum(map(slots.size_of, run))
        for number, step in ((run[0] // 2 - 1, -1), ((run[-1] + 1) // 2, 1)):
            small = []
            while slots.is_free(number) and slots.base.ranges[number].size < rules.bytes_min:
                small.append(number)
                number += step
            taken, size = _worth_taking([slots.base.ranges[each].size for each in small], size)
            slots.touched.update(2 * each + 1 for each in small[:taken])


def _worth_taking(sizes: Sequence[int], written: int) -> tuple[int, int]:
    """Return how many neighbours (sizes given nearest first) to merge, and the bytes written with them."""
    taken = 0
    while True:
        end = taken
        while end < len(sizes) and sizes[end] <= written:
            end += 1
        joint_size = sum(sizes[taken:end])
        if end == taken or (end - taken < FAN_OUT - 1 and FAN_OUT * joint_size > written):
            return taken, written
        taken, written = end, written + joint_size


def _units_of(slots: _Slots, run: Sequence[int], unit_bytes: int) -> Iterable[Unit]:
    """Split a run of slots into units of about ``unit_bytes``."""
    ranges = slots.base.ranges
    open_first, size = run[0] // 2, 0
    after = ranges[open_first - 1].last_key if open_first else None
    for slot in run:
        number = slot // 2
        if slot % 2:
            size += slots.size_of(slot)
            if size >= unit_bytes and slot != run[-1]:
                yield Unit(first=open_first, end=number + 1, after=after, upto=ranges[number].last_key, size=size)
                open_first, after, size = number + 1, ranges[number].last_key, 0
            continue
        borders = sorted(slots.borders.get(slot, ()))
        for border in borders:
            size += slots.size_of(slot) // (len(borders) + 1)
            if size >= unit_bytes:
                yield Unit(first=open_first, end=number, after=after, upto=border, size=size)
                open_first, after, size = number, border, 0
        size += slots.size_of(slot) // (len(borders) + 1)
    number = run[-1] // 2
    if run[-1] % 2:
        yield Unit(first=open_first, end=number + 1, after=after, upto=ranges[number].last_key, size=size)
    else:
        upto = ranges[number].first_key if number < len(ranges) else None
        yield Unit(first=open_first, end=number, after=after, upto=upto, size=size)
