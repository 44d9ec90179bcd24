"""Builder of files of sorted rows (header, blocks, index, footer), and reader of their index."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from engine.core.binary import ByteReader, encode_uvarint
from engine.core.checksums import crc32c
from engine.core.errors import BadObject, ChecksumMismatch, Truncated, UnknownFormat
from engine.formats.ranges.layout import FOOTER_BYTES, HEADER_BYTES, MAGIC, VERSION


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """Position, size, number of rows and checksum of a block in its file."""

    offset: int
    size: int
    rows: int
    crc: int


@dataclass(frozen=True, slots=True)
class FileIndex:
    """The index of a file: its blocks and their last keys."""

    first_key: bytes
    last_keys: tuple[bytes, ...]
    places: tuple[BlockPlace, ...]

    def block_of(self, key: bytes) -> int:
        """Return the index of the only block that can contain the key, or the number of blocks."""
        return bisect_left(self.last_keys, key)

    def block_after(self, key: bytes) -> int:
        """Return the index of the first block with a greater key, or the number of blocks."""
        return bisect_right(self.last_keys, key)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """The description of a file.

    ``id`` is the SHA-256 of its bytes, ``size`` the bytes of its keys, identities and payloads, ``tail_bytes`` the size
    of index and footer at its end.
    """

    id: str
    first_key: bytes
    last_key: bytes
    rows: int
    size: int
    file_bytes: int
    tail_bytes: int


class FileBuilder:
    """A ``BlockSink`` that builds files of one kind, one at a time in memory, and passes each to ``finished``."""

    def __init__(self, kind: bytes, finished: Callable[[FileInfo, bytes], None]) -> None:
        self._kind, self._finished = kind, finished
        self._begin()

    def block(self, data: bytes, rows: int, size: int, first_key: bytes, last_key: bytes) -> None:
        if not self._last_keys:
            self._first_key = first_key
        self._parts.append(data)
        self._last_keys.append(last_key)
        self._index.append((len(data), rows, crc32c(data)))
        self._rows += rows
        self._size += size

    def cut(self) -> None:
        """Finish the current file, which may be without rows."""
        tail = make_tail(self._kind, self._first_key, self._last_keys, self._index, self._rows, self._size)
        data = b"".join((*self._parts, tail))
        info = FileInfo(
            id=hashlib.sha256(data).hexdigest(),
            first_key=self._first_key,
            last_key=self._last_keys[-1] if self._last_keys else b"",
            rows=self._rows,
            size=self._size,
            file_bytes=len(data),
            tail_bytes=len(tail),
        )
        self._begin()
        self._finished(info, data)

    def _begin(self) -> None:
        self._parts = [header(self._kind)]
        self._last_keys: list[bytes] = []
        self._index: list[tuple[int, int, int]] = []
        self._rows = self._size = 0
        self._first_key = b""


def header(kind: bytes) -> bytes:
    """Return the header of a file of this kind."""
    return MAGIC + bytes([VERSION]) + kind + bytes(2)


def make_tail(
    kind: bytes, first_key: bytes, last_keys: list[bytes], blocks: list[tuple[int, int, int]], rows: int, size: int
) -> bytes:
    index = bytearray(encode_uvarint(len(blocks)) + encode_uvarint(len(first_key)) + first_key)
    for last_key, (length, block_rows, crc) in zip(last_keys, blocks, strict=True):
        index += encode_uvarint(length) + encode_uvarint(block_rows) + crc.to_bytes(4, "little")
        index += encode_uvarint(len(last_key)) + last_key
    counts = rows.to_bytes(8, "little") + size.to_bytes(8, "little") + (len(index) + FOOTER_BYTES).to_bytes(4, "little")
    described = bytes(index) + counts
    return described + crc32c(described).to_bytes(4, "little") + kind + bytes([VERSION]) + bytes(2) + MAGIC


def read_footer(footer: bytes, kind: bytes) -> int:
    """Return the size of the tail that ends with this footer. Raises Truncated, UnknownFormat."""
    if len(footer) != FOOTER_BYTES:
        raise Truncated("footer", 0, "the file is shorter than its footer")
    if footer[-4:] != MAGIC or footer[25] != VERSION:
        raise UnknownFormat("footer", 24, f"not a catalog file of version {VERSION}")
    if footer[24:25] != kind:
        raise UnknownFormat("footer", 24, f"the file is of kind {footer[24:25]!r}, expected {kind!r}")
    return int.from_bytes(footer[16:20], "little")


def read_index(tail: bytes, file_bytes: int, kind: bytes) -> FileIndex:
    """Return the index in the tail of a file of ``file_bytes`` bytes. Raises BadObject."""
    if read_footer(tail[-FOOTER_BYTES:], kind) != len(tail):
        raise BadObject("footer", 16, "the tail does not have the size that the footer states")
    described = tail[: 20 - FOOTER_BYTES]
    if crc32c(described) != int.from_bytes(tail[-12:-8], "little"):
        raise ChecksumMismatch("index", 0, "the checksum of the index does not match")
    reader = ByteReader(tail[:-FOOTER_BYTES], "index")
    count = reader.uvarint()
    first_key = reader.text()
    sizes, rows, crcs, last_keys = [], [], [], []
    for _ in range(count):
        sizes.append(reader.uvarint())
        rows.append(reader.uvarint())
        crcs.append(int.from_bytes(reader.take(4), "little"))
        last_keys.append(reader.text())
    ends = list(accumulate(sizes, initial=HEADER_BYTES))
    if ends[-1] != file_bytes - len(tail) or reader.left or last_keys != sorted(set(last_keys)):
        raise BadObject("index", 0, "the index does not match the file")
    if sum(rows) != int.from_bytes(tail[-FOOTER_BYTES : 8 - FOOTER_BYTES], "little"):
        raise BadObject("index", 0, "the row counts of blocks and file differ")
    places = (BlockPlace(*each) for each in zip(ends, sizes, rows, crcs, strict=False))
    return FileIndex(first_key, tuple(last_keys), tuple(places))


def check_block(block: bytes, place: BlockPlace) -> bytes:
    """Return a block. Raises ChecksumMismatch unless its size and checksum match."""
    if len(block) != place.size or crc32c(block) != place.crc:
        raise ChecksumMismatch("block", place.offset, "the size or checksum of the block does not match")
    return block
