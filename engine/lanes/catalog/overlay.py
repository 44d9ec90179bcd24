"""The combined staged changes of a branch: lookup of one key, and scans in key order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from engine.formats.ranges.model import IntervalTombstone, Row
from engine.lanes.catalog.intervals import interval_of, union_of

SEEK_STEPS = 100
"""Rows that a cursor steps over before it queries again from the later key; a new query costs about as much."""


class LayerRow(NamedTuple):
    """A staged record with its layer: 0 is the staging token, 1 the newest sealed token, and so on."""

    key: bytes
    layer: int
    generation: int
    identity: bytes
    payload: bytes


class LayerInterval(NamedTuple):
    """A staged interval tombstone with its layer."""

    layer: int
    interval: IntervalTombstone


class StagedRows(Protocol):
    """The staged rows of one version of a branch's record. Read errors propagate to the caller."""

    def of_key(self, key: bytes) -> Sequence[LayerRow]:
        """Return the rows of a key in all layers, in any order, with one query."""

    def scan(self, start: bytes, end: bytes | None) -> Iterator[LayerRow]:
        """Yield rows from ``start`` up to ``end`` (exclusive), ordered by key and layer."""

    def intervals(self) -> Sequence[LayerInterval]:
        """Return all interval tombstones."""


class Overlay:
    """The combined content of all layers. ``covered`` is the union of the staged interval tombstones.

    A row that no interval hides takes precedence over ``covered``. ``rows_read`` counts the staged rows read.
    """

    def __init__(self, staged: StagedRows) -> None:
        self._staged = staged
        self._intervals = tuple(staged.intervals())
        self.covered = union_of((each.interval.start, each.interval.end) for each in self._intervals)
        self.rows_read = 0

    def lookup(self, key: bytes) -> Row | None:
        """Return the deciding row of a key: a value, a tombstone (empty identity), or None if nothing is staged."""
        rows = sorted(self._staged.of_key(key), key=lambda row: row.layer)
        self.rows_read += len(rows)
        row = self._decided(rows)
        if row is None and interval_of(self.covered, key):
            return key, b"", b""
        return row

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[Row]:
        """Yield the deciding row, a value or a tombstone, of each key with a row that is not hidden."""
        group: list[LayerRow] = []
        for row in self._staged.scan(start, end):
            self.rows_read += 1
            if group and group[0].key != row.key:
                if (decided := self._decided(group)) is not None:
                    yield decided
                group = []
            group.append(row)
        if group and (decided := self._decided(group)) is not None:
            yield decided

    def cursor(self, start: bytes, end: bytes | None = None) -> OverlayCursor:
        """Return a cursor at the first deciding row from ``start`` on."""
        return OverlayCursor(self, start, end)

    def _decided(self, rows: Sequence[LayerRow]) -> Row | None:
        """Return the newest of a key's rows that no interval hides."""
        for row in rows:
            if not any(_hides(each, row) for each in self._intervals):
                return row.key, row.identity, row.payload
        return None


class OverlayCursor:
    """A cursor over deciding rows; ``row`` is the current one, None after the last."""

    def __init__(self, overlay: Overlay, start: bytes, end: bytes | None) -> None:
        self._overlay, self._end = overlay, end
        self._rows = overlay.scan(start, end)
        self.row = next(self._rows, None)

    def step(self) -> None:
        """Advance to the next row."""
        self.row = next(self._rows, None)

    def seek(self, key: bytes) -> None:
        """Advance to the first row whose key is not less than ``key``."""
        for _ in range(SEEK_STEPS):
            if self.row is None or self.row[0] >= key:
                return
            self.step()
        self._rows = self._overlay.scan(key, self._end)
        self.step()


def _hides(layered: LayerInterval, row: LayerRow) -> bool:
    if layered.layer > row.layer or not layered.interval.covers(row.key):
        return False
    return layered.layer < row.layer or layered.interval.generation > row.generation


class NoRows:
    """An empty set of staged rows, for the view of a commit."""

    def of_key(self, key: bytes) -> Sequence[LayerRow]:
        return ()

    def scan(self, start: bytes, end: bytes | None) -> Iterator[LayerRow]:
        return iter(())

    def intervals(self) -> Sequence[LayerInterval]:
        return ()
