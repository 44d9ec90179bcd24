"""Staged rows in memory, as a database gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.formats.ranges.model import Interval, IntervalTombstone
from engine.lanes.catalog.overlay import LayerInterval, LayerRow, Overlay
from tests.engine.lanes.catalog.factories import Changes, row

Layers = Sequence[tuple[Changes, Sequence[Interval]]]


class MemoryRows:
    """Layers, newest first; in each the intervals come before the rows. ``fails_behind`` breaks the scan there."""

    def __init__(self, layers: Layers, fails_behind: int | None = None) -> None:
        self.layers, self.fails_behind = layers, fails_behind
        self.queries = 0

    def of_key(self, key: bytes) -> Sequence[LayerRow]:
        self.queries += 1
        return [each for each in self._rows() if each.key == key][::-1]

    def scan(self, start: bytes, end: bytes | None) -> Iterator[LayerRow]:
        self.queries += 1
        rows = [each for each in self._rows() if each.key >= start and (end is None or each.key < end)]
        for number, each in enumerate(rows):
            if number == self.fails_behind:
                raise OSError(f"row {number}")
            yield each

    def intervals(self) -> Sequence[LayerInterval]:
        return [
            LayerInterval(number, IntervalTombstone(start, end, 1))
            for number, (_, intervals) in enumerate(self.layers)
            for start, end in intervals
        ]

    def _rows(self) -> list[LayerRow]:
        found = []
        for number, (changes, _) in enumerate(self.layers):
            for key, value in changes.items():
                _, identity, payload = row(key, value, "staged")
                found.append(LayerRow(key, number, 2, identity, payload))
        return sorted(found)


def overlay(*layers: tuple[Changes, Sequence[Interval]] | Changes) -> Overlay:
    """What these layers (newest first) say; one without intervals is given as its changes only."""
    return Overlay(MemoryRows([each if isinstance(each, tuple) else (each, ()) for each in layers]))
