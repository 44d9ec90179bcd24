"""Sorted files with the rows of one token, in memory or in the store: the input of a merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from threading import Lock

from engine.core.checksums import crc32c
from engine.core.errors import BadObject
from engine.formats.ranges.entry_blocks import encode_rows
from engine.formats.ranges.layout import Kind
from engine.formats.ranges.model import Interval, IntervalTombstone, Row, StagedRecord
from engine.formats.ranges.range_file import FileIndex, check_block, header, make_tail, read_index
from engine.lanes.catalog.intervals import union_of
from engine.storage import ObjectStore

READ_BLOCKS = 32
SPOOL_BYTES = 32 << 20
COPY_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The number of rows of a run, and the bytes of its file and of the file's tail."""

    rows: int
    file_bytes: int
    tail_bytes: int


class StagedRun:
    """The sorted rows of a token, read by byte range; ``name`` identifies the run in errors."""

    def __init__(self, info: RunInfo, read: Callable[[int, int], bytes], name: str) -> None:
        self.info, self.name, self._read = info, name, read
        self._index: FileIndex | None = None

    @property
    def index(self) -> FileIndex:
        if self._index is None:
            tail = self._read(self.info.file_bytes - self.info.tail_bytes, self.info.tail_bytes)
            try:
                self._index = read_index(tail, self.info.file_bytes, Kind.STAGED)
            except BadObject as error:
                raise error.in_object(self.name) from error
        return self._index

    def copy_to(self, write: Callable[[bytes], object]) -> None:
        """Pass the file's bytes to ``write`` in pieces of ``COPY_BYTES``."""
        for offset in range(0, self.info.file_bytes, COPY_BYTES):
            write(self._read(offset, min(COPY_BYTES, self.info.file_bytes - offset)))

    def blocks(self, after: bytes | None = None, *, at_once: int = READ_BLOCKS) -> Iterator[bytes]:
        """Yield the blocks from the first with a key greater than ``after``; ``at_once`` blocks are read and held."""
        index = self.index
        first = 0 if after is None else index.block_after(after)
        for begin in range(first, len(index.places), at_once):
            places = index.places[begin : begin + at_once]
            data = self._read(places[0].offset, sum(place.size for place in places))
            for place in places:
                start = place.offset - places[0].offset
                try:
                    yield check_block(data[start : start + place.size], place)
                except BadObject as error:
                    raise error.in_object(self.name) from error


@dataclass(frozen=True, slots=True)
class Layer:
    """The content of one token: rows, and intervals of deleted keys below them (ascending, disjoint)."""

    run: StagedRun
    intervals: tuple[Interval, ...] = ()


def write_run(rows: Iterable[Row], write: Callable[[bytes], object]) -> RunInfo:
    """Write ascending rows as a run, block by block. Raises UnsortedKeys if they do not ascend."""
    sink = _StreamSink(write)
    encode_rows(rows, sink, None)
    return sink.finish()


def memory_run(rows: Iterable[Row], name: str = "staged rows") -> StagedRun:
    """Return a run that is held in memory."""
    data = bytearray()
    info = write_run(rows, data.extend)
    return StagedRun(info, lambda offset, length: bytes(data[offset : offset + length]), name)


@contextmanager
def spooled_run(rows: Iterable[Row], memory_bytes: int = SPOOL_BYTES, name: str = "staged rows") -> Iterator[StagedRun]:
    """Provide a run that is held in memory up to ``memory_bytes``, and in a temporary file beyond."""
    lock = Lock()
    with SpooledTemporaryFile(memory_bytes) as file:
        info = write_run(rows, file.write)

        def read(offset: int, length: int) -> bytes:
            with lock:
                file.seek(offset)
                return file.read(length)

        yield StagedRun(info, read, name)


def stored_run(store: ObjectStore, key: str, info: RunInfo) -> StagedRun:
    """Return a run that is in the store."""
    return StagedRun(info, lambda offset, length: store.get_range(key, offset, length), key)


def layer_rows(records: Iterable[StagedRecord], intervals: Sequence[IntervalTombstone]) -> Iterator[Row]:
    """Yield a token's records as rows, except those that a later interval of the same token deletes.

    Errors of ``records`` propagate, so a layer is complete or not built.
    """
    for record in records:
        if not any(each.generation > record.generation and each.covers(record.key) for each in intervals):
            yield record.key, record.identity, record.payload


def memory_layer(records: Iterable[StagedRecord], intervals: Sequence[IntervalTombstone] = ()) -> Layer:
    """Return the layer of a token whose ascending records fit into memory."""
    covered = union_of((each.start, each.end) for each in intervals)
    return Layer(memory_run(layer_rows(records, intervals)), covered)


class _StreamSink:
    """A block sink that writes the blocks of one file as they come."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._last_keys: list[bytes] = []
        self._blocks: list[tuple[int, int, int]] = []
        self._first_key = b""
        self._rows = self._size = 0
        write(header(Kind.STAGED))

    def block(self, data: bytes, rows: int, size: int, first_key: bytes, last_key: bytes) -> None:
        if not self._last_keys:
            self._first_key = first_key
        self._last_keys.append(last_key)
        self._blocks.append((len(data), rows, crc32c(data)))
        self._rows += rows
        self._size += size
        self._write(data)

    def cut(self) -> None:
        """Do nothing: a run is one file."""

    def finish(self) -> RunInfo:
        head = header(Kind.STAGED)
        tail = make_tail(Kind.STAGED, self._first_key, self._last_keys, self._blocks, self._rows, self._size)
        self._write(tail)
        length = len(head) + sum(size for size, _, _ in self._blocks) + len(tail)
        return RunInfo(self._rows, length, len(tail))
