"""The staged changes of a branch, all layers at once: what they say of a key, and of all keys in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from engine.formats.ranges.model import IntervalTombstone, Row
from engine.lanes.catalog.intervals import interval_of, union_of

SEEK_STEPS = 100
"""How many rows a cursor steps over before it asks for the rows from a later key on: a new query costs about that."""


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
    """The staged rows of one version of a branch's record. What reading raises reaches whoever asked."""

    def of_key(self, key: bytes) -> Sequence[LayerRow]:
        """Return the rows of a key in all layers, in any order: one query, however many layers there are."""

    def scan(self, start: bytes, end: bytes | None) -> Iterator[LayerRow]:
        """Yield rows from ``start`` up to before ``end``, by key, and of each key by layer."""

    def intervals(self) -> Sequence[LayerInterval]:
        """Return all interval tombstones."""


class Overlay:
    """What all layers together say; ``covered`` are the keys that some interval deletes, where no row says otherwise.

    ``rows_read`` counts the staged rows that were looked at.
    """

    def __init__(self, staged: StagedRows) -> None:
        self._staged = staged
        self._intervals = tuple(staged.intervals())
        self.covered = union_of((each.interval.start, each.interval.end) for each in self._intervals)
        self.rows_read = 0

    def lookup(self, key: bytes) -> Row | None:
        """Return what the layers say of a key: a value, a tombstone (empty identity), or None for nothing."""
        rows = sorted(self._staged.of_key(key), key=lambda row: row.layer)
        self.rows_read += len(rows)
        row = self._decided(rows)
        if row is None and interval_of(self.covered, key):
            return key, b"", b""
        return row

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[Row]:
        """Yield, for each key with a row that is not hidden, the row that decides: a value or a tombstone."""
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
        """Return a cursor at the first row that decides from ``start`` on."""
        return OverlayCursor(self, start, end)

    def _decided(self, rows: Sequence[LayerRow]) -> Row | None:
        """Return the newest of a key's rows that no interval hides."""
        for row in rows:
            if not any(_hides(each, row) for each in self._intervals):
                return row.key, row.identity, row.payload
        return None


class OverlayCursor:
    """Stands on a row that decides (``row``; None behind the last)."""

    def __init__(self, overlay: Overlay, start: bytes, end: bytes | None) -> None:
        self._overlay, self._end = overlay, end
        self._rows = overlay.scan(start, end)
        self.row = next(self._rows, None)

    def step(self) -> None:
        """Go to the next row."""
        self.row = next(self._rows, None)

    def seek(self, key: bytes) -> None:
        """Go forward to the first row whose key is not less than ``key``."""
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
    """Nothing is staged: the view of a commit."""

    def of_key(self, key: bytes) -> Sequence[LayerRow]:
        return ()

    def scan(self, start: bytes, end: bytes | None) -> Iterator[LayerRow]:
        return iter(())

    def intervals(self) -> Sequence[LayerInterval]:
        return ()
