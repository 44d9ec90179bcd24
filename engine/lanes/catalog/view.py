"""The visible entries of a branch: its staged changes over its base. A commit is a view without changes.

The base is the branch's snapshot if it has one, else its head commit. A key that the snapshot lacks is deleted; the
commit is not consulted.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.formats.ranges.errors import InvalidRecord
from engine.formats.ranges.model import Entry, Row, prefix_end
from engine.lanes.catalog.intervals import interval_of
from engine.lanes.catalog.overlay import NoRows, Overlay
from engine.lanes.catalog.state_reader import StateReader


@dataclass(frozen=True, slots=True)
class CommonPrefix:
    """Represents all keys with this prefix in a listing."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a listing in key order.

    ``after`` is where the next page starts, None on the last page. ``staged_rows`` and ``base_rows`` count the rows
    read; a high number per item is the cost that a compaction removes.
    """

    items: tuple[Entry | CommonPrefix, ...]
    after: bytes | None
    staged_rows: int
    base_rows: int


class View:
    """Reads a branch or a commit. All reads see the version of the branch's record that ``overlay`` was made from."""

    def __init__(self, base: StateReader, overlay: Overlay | None = None) -> None:
        self.base = base
        self.overlay = overlay or Overlay(NoRows())

    def get(self, key: bytes) -> Entry | None:
        """Return the visible entry of a key, None if there is none."""
        row = self.overlay.lookup(key)
        if row is None:
            return self.base.get(key)
        return Entry(*row) if row[1] else None

    def needs_tombstone(self, key: bytes) -> bool:
        """Return whether a deletion of the key needs a tombstone: whenever any row of it exists.

        This includes a newest row that is a tombstone. If that row is in a sealed token, a late writer may have added
        it after a build had read the token, and it disappears with the token.
        """
        return self.overlay.lookup(key) is not None or self.base.get(key) is not None

    def list_page(
        self, *, prefix: bytes = b"", after: bytes = b"", delimiter: bytes = b"", amount: int = 1_000
    ) -> Page:
        """Return up to ``amount`` items after ``after`` whose keys begin with ``prefix``.

        With a delimiter, keys that contain it after the prefix are listed once, as their common prefix. A common prefix
        given as ``after`` skips all keys it represents. Raises InvalidRecord for an ``amount`` below 1.
        """
        if amount < 1:
            raise InvalidRecord(f"page size {amount} is below 1")
        walk = _ListWalk(self, prefix, after, delimiter)
        items: list[Entry | CommonPrefix] = []
        while (item := walk.next_item()) is not None:
            if len(items) == amount:
                return walk.page(items, items[-1].key)
            items.append(item)
        return walk.page(items, None)


class _ListWalk:
    """Iterates over one listing."""

    def __init__(self, view: View, prefix: bytes, after: bytes, delimiter: bytes) -> None:
        self._prefix, self._delimiter = prefix, delimiter
        self._end = prefix_end(prefix)
        self._overlay = view.overlay
        self._rows_before = view.overlay.rows_read
        start: bytes | None = max(prefix, after + b"\0") if after else prefix
        if after and self._common(after) == after:
            start = prefix_end(after)
        self._is_over = start is None
        self._staged = view.overlay.cursor(start or b"", self._end)
        self._base = view.base.cursor(start or b"")

    def next_item(self) -> Entry | CommonPrefix | None:
        """Return the next item, None after the last."""
        while (row := self._next_row()) is not None:
            if row[1]:
                return self._item(row)
        return None

    def page(self, items: list[Entry | CommonPrefix], after: bytes | None) -> Page:
        staged_rows = self._overlay.rows_read - self._rows_before
        return Page(tuple(items), after, staged_rows, self._base.rows_read)

    def _next_row(self) -> Row | None:
        """Advance past the next key and return its deciding row; a tombstone has no identity."""
        base_row = self._visible_base_row()
        staged = self._staged.row
        if self._is_over or (base_row is None and staged is None):
            return None
        if staged is None or (base_row is not None and base_row[0] < staged[0]):
            self._base.step()
            return base_row
        if base_row is not None and base_row[0] == staged[0]:
            self._base.step()
        self._staged.step()
        return staged

    def _visible_base_row(self) -> Row | None:
        """Return the base's current row, skipping rows that an interval deletes."""
        while (row := self._base.row) is not None:
            if self._end is not None and row[0] >= self._end:
                return None
            interval = interval_of(self._overlay.covered, row[0])
            if interval is None:
                return row
            if interval[1] is None:
                return None
            self._base.seek(interval[1])
        return None

    def _item(self, row: Row) -> Entry | CommonPrefix:
        common = self._common(row[0])
        if common is None:
            return Entry(*row)
        next_key = prefix_end(common)
        if next_key is None:
            self._is_over = True
        else:
            self._base.seek(next_key)
            self._staged.seek(next_key)
        return CommonPrefix(common)

    def _common(self, key: bytes) -> bytes | None:
        if not self._delimiter or not key.startswith(self._prefix):
            return None
        at = key.find(self._delimiter, len(self._prefix))
        return None if at < 0 else key[: at + len(self._delimiter)]
