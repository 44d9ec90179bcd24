"""Open a dataset for a query with few and small range reads.

A small dataset is read whole. For a larger one, the end of the profile table (its footer) and the series index behind
it are read together, then the needed columns of row groups and the symbols. Footers, series and symbols are kept in a
cache that all queries share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pyarrow.parquet as pq

from engine.core.errors import BadObject
from engine.formats.profile_block.container.container import ObjectReader
from engine.formats.profile_block.merge_model import PROFILES, SERIES_INDEX, SYMBOLS, DatasetSource
from engine.formats.profile_block.model import IndexedSeries, SymbolPartition
from engine.formats.profile_block.series.series_index import decode_series_index
from engine.formats.profile_block.symbols.symbols import decode_symbols
from engine.formats.profile_block.table.profile_table import ProfileTableReader, SectionFile
from engine.query.flame.stack_table import StackTable
from engine.query.model import QueryDataset
from engine.storage.section_cache import SectionCache

WHOLE_BYTES = 256 << 10
"""Maximum size of a dataset that is read whole: a second request would take longer than the transfer."""
FOOTER_GUESS_BYTES = 16 << 10
"""Bytes of the end of a profile table read with the series index; a longer footer needs another read."""
GAP_BYTES = 64 << 10
"""Ranges with a smaller gap are read together."""
SERIES_BYTES = 600
"""Estimated memory of a decoded series."""
FOOTER_FACTOR = 8
"""Estimated memory of a decoded footer per encoded byte."""

NAME_BYTES = 60
"""Estimated memory overhead of a name in a stack table."""

TableOf = Callable[[SymbolPartition], StackTable]
Phase = Callable[[str], AbstractContextManager[None]]


class RangeReader:
    """Reader of ranges of one object, with a buffer of ranges prefetched by ``hold``."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._held: list[tuple[int, bytes]] = []

    def hold(self, start: int, end: int) -> None:
        """Prefetch a range in one read, unless it is buffered."""
        if self._find(start, end - start) is None:
            self._held.append((start, self._read(start, end - start)))

    def drop(self) -> None:
        """Drop the buffer."""
        self._held.clear()

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes."""
        found = self._find(offset, length)
        return found if found is not None else self._read(offset, length)

    def _find(self, offset: int, length: int) -> bytes | None:
        for start, data in self._held:
            if start <= offset and offset + length <= start + len(data):
                return data[offset - start : offset - start + length]
        return None


class OpenDataset:
    """One open dataset of an object. Not thread-safe."""

    def __init__(self, reader: ObjectReader, dataset: QueryDataset, cache: SectionCache, phase: Phase) -> None:
        self.dataset = dataset
        self.key = reader.key
        self._reader = reader
        self._cache = cache
        self._phase = phase
        self._is_small = dataset.size <= WHOLE_BYTES
        self._ranges = RangeReader(reader.read)
        if len(dataset.table_of_contents) != 3:
            raise BadObject("container", -1, f"a dataset of {len(dataset.table_of_contents)} sections")
        first, second, third = dataset.table_of_contents
        self._source = DatasetSource(
            object_name=reader.key, table_of_contents=(first, second, third), size=dataset.size, read=self._ranges.read
        )

    @property
    def fetched(self) -> tuple[int, int]:
        """Return the number of requests and of bytes read so far."""
        return self._reader.requests, self._reader.bytes_read

    def series(self) -> list[IndexedSeries]:
        """Return the dataset's series."""
        return self._cache.get((self.key, self.dataset.position, "series"), self._read_series)

    def table(self) -> ProfileTableReader:
        """Open the profile table."""
        offset, size = self._source.section_bounds(PROFILES)

        def read_footer() -> tuple[pq.FileMetaData, int]:
            self._hold_head()
            with self._phase("open"):
                footer = ProfileTableReader(SectionFile(self._ranges.read, offset, size)).footer
            return footer, FOOTER_FACTOR * footer.serialized_size

        footer = self._cache.get((self.key, self.dataset.position, "footer"), read_footer)
        return ProfileTableReader(SectionFile(self._ranges.read, offset, size), footer=footer, reads_ahead=False)

    def hold(self, stretches: Sequence[tuple[int, int]]) -> None:
        """Prefetch sorted ranges (start, end) of the profile table; adjacent ones in one read."""
        if self._is_small:
            self._hold_head()
            return
        offset, _ = self._source.section_bounds(PROFILES)
        joined: list[tuple[int, int]] = []
        for start, end in stretches:
            if joined and start - joined[-1][1] < GAP_BYTES:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        for start, end in joined:
            self._ranges.hold(offset + start, offset + end)

    def drop(self) -> None:
        """Drop buffered ranges at the end of a row group; a small dataset stays buffered."""
        if not self._is_small:
            self._ranges.drop()

    def symbols(self, table_of: TableOf) -> dict[int, StackTable]:
        """Return the stack tables, made by ``table_of``, by partition."""
        return self._cache.get((self.key, self.dataset.position, table_of), lambda: self._read_symbols(table_of))

    def _read_series(self) -> tuple[list[IndexedSeries], int]:
        self._hold_head()
        with self._phase("open"):
            section = self._source.read_section(SERIES_INDEX)
        with self._phase("series"):
            series = decode_series_index(section)
        return series, SERIES_BYTES * len(series)

    def _read_symbols(self, table_of: TableOf) -> tuple[dict[int, StackTable], int]:
        with self._phase("open"):
            section = self._source.read_section(SYMBOLS)
        with self._phase("symbols"):
            tables = {partition.id: table_of(partition) for partition in decode_symbols(section)}
        return tables, sum(map(_table_bytes, tables.values()))

    def _hold_head(self) -> None:
        """Prefetch the whole of a small dataset, else the footer and the series index."""
        with self._phase("open"):
            start, size = self._source.section_bounds(PROFILES)
            index_start, index_size = self._source.section_bounds(SERIES_INDEX)
            self._source.section_bounds(SYMBOLS)
            if self._is_small:
                self._ranges.hold(start, start + self.dataset.size)
            else:
                self._ranges.hold(start + max(0, size - FOOTER_GUESS_BYTES), index_start + index_size)


def _table_bytes(table: StackTable) -> int:
    columns = (table.parents, table.locations, table.frame_starts, table.frames)
    texts = sum(len(name) for name in table.names if isinstance(name, bytes))
    return sum(column.nbytes for column in columns) + texts + NAME_BYTES * len(table.names)


class OpenObjects:
    """Counts the requests and bytes of the objects of one query."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: set[str] = set()
        self.datasets = 0
        self.requests = 0
        self.bytes_read = 0

    @property
    def count(self) -> int:
        """Return the number of objects that were read."""
        return len(self._keys)

    def add(self, reader: ObjectReader) -> None:
        """Add the reads of an object since it was opened; zero if all came from the cache."""
        with self._lock:
            self.datasets += 1
            self.requests += reader.requests
            self.bytes_read += reader.bytes_read
            if reader.requests:
                self._keys.add(reader.key)

    def add_more(self, key: str, requests: int, bytes_read: int) -> None:
        """Add later reads of an object."""
        with self._lock:
            self.requests += requests
            self.bytes_read += bytes_read
            if requests:
                self._keys.add(key)
