"""Read one state of the catalog: single keys, or keys in order from any start. Only needed blocks are read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import Entry, Row
from engine.formats.ranges.range_file import FileIndex, FileInfo
from engine.lanes.catalog.files import CatalogFiles
from engine.storage.section_cache import SectionCache

READ_AHEAD_BLOCKS = 32
"""The largest number of blocks (of about 32 KiB) that a long scan reads at once."""
CACHE_BYTES = 32 << 20


class StateReader:
    """Reads a metarange's entries. The reader is thread-safe, a cursor is not.

    ``cache`` keeps indexes of ranges, which are immutable; readers may share it.
    """

    def __init__(self, files: CatalogFiles, metarange: Metarange, cache: SectionCache | None = None) -> None:
        self.files, self.metarange = files, metarange
        self._cache = cache or SectionCache(CACHE_BYTES)

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key, None if there is none; at most one index and one block are read."""
        number = self.metarange.range_of(key)
        if number == len(self.metarange.ranges) or key < self.metarange.ranges[number].first_key:
            return None
        rows = self.blocks(number, self.index(number).block_of(key), 1)[0]
        at = bisect_left(rows, key, key=_key)
        return Entry(*rows[at]) if at < len(rows) and rows[at][0] == key else None

    def over(self, ranges: Iterable[FileInfo]) -> StateReader:
        """Return a reader of only these ranges, with the same cache."""
        return StateReader(self.files, Metarange(id="", ranges=tuple(ranges)), self._cache)

    def cursor(self, start: bytes = b"") -> StateCursor:
        """Return a cursor at the first entry whose key is not less than ``start``."""
        return StateCursor(self, start)

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[Entry]:
        """Yield entries from ``start`` up to ``end`` (exclusive)."""
        cursor = self.cursor(start)
        while cursor.row is not None and (end is None or cursor.row[0] < end):
            yield Entry(*cursor.row)
            cursor.step()

    def index(self, number: int) -> FileIndex:
        """Return the index of one of the ranges."""
        info = self.metarange.ranges[number]

        def read() -> tuple[FileIndex, int]:
            return self.files.read_index(info), 4 * info.tail_bytes  # The parsed keys take about four times the bytes.

        return self._cache.get(("index", info.id), read)

    def blocks(self, number: int, first: int, count: int) -> list[list[Row]]:
        """Return the rows of consecutive blocks of one of the ranges."""
        return self.files.read_blocks(self.metarange.ranges[number], self.index(number), first, count)


class StateCursor:
    """A cursor over entries; ``row`` is the current one, None after the last. ``rows_read`` counts visited entries."""

    def __init__(self, reader: StateReader, start: bytes) -> None:
        self._reader = reader
        self._range = self._block = 0
        self._ready: list[list[Row]] = []
        self._rows: list[Row] = []
        self._at = 0
        self._ahead = 1
        self.row: Row | None = None
        self.rows_read = 0
        self._find(start)

    def step(self) -> None:
        """Advance to the next entry."""
        if self.row is None:
            return
        self._at += 1
        if self._at == len(self._rows):
            self._next_block()
        self._set_row()

    def seek(self, key: bytes) -> None:
        """Advance to the first entry whose key is not less than ``key``; never moves back."""
        if self.row is None or self.row[0] >= key:
            return
        if self._rows[-1][0] >= key:
            self._at = bisect_left(self._rows, key, self._at, key=_key)
            self._set_row()
        else:
            self._find(key)

    def _find(self, key: bytes) -> None:
        """Position the cursor by a lookup in the metarange."""
        ranges = self._reader.metarange.ranges
        self._range = self._reader.metarange.range_of(key)
        self._rows, self._at, self._ready = [], 0, []
        if self._range < len(ranges):
            before = key <= ranges[self._range].first_key
            self._block = 0 if before else self._reader.index(self._range).block_of(key)
            self._ahead = 1
            self._fetch()
            self._at = bisect_left(self._rows, key, key=_key)
        self._set_row()

    def _next_block(self) -> None:
        self._block += 1
        self._rows, self._at = [], 0
        if self._ready:
            self._rows = self._ready.pop()
            return
        if self._block == len(self._reader.index(self._range).places):
            self._range, self._block = self._range + 1, 0
        if self._range < len(self._reader.metarange.ranges):
            self._ahead = min(2 * self._ahead, READ_AHEAD_BLOCKS)
            self._fetch()

    def _fetch(self) -> None:
        self._ready = self._reader.blocks(self._range, self._block, self._ahead)[::-1]
        self._rows = self._ready.pop()

    def _set_row(self) -> None:
        self.row = self._rows[self._at] if self._at < len(self._rows) else None
        self.rows_read += self.row is not None


class AscendingLookup:
    """Looks up ascending keys. Nothing is read before the first lookup."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader
        self._cursor: StateCursor | None = None

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key, which must not be less than the keys looked up before."""
        if self._cursor is None:
            self._cursor = self._reader.cursor(key)
        self._cursor.seek(key)
        row = self._cursor.row
        return Entry(*row) if row is not None and row[0] == key else None


def _key(row: Row) -> bytes:
    return row[0]
