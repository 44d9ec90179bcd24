"""A metarange: the ascending list of the ranges that together are one state of all keys."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

from engine.core.byte_reader import ByteReader
from engine.core.errors import BadObject
from engine.formats.prometheus.varints import uvarint
from engine.formats.ranges.errors import UnsortedKeys
from engine.formats.ranges.model import Row
from engine.formats.ranges.range_file import FileInfo


@dataclass(frozen=True)
class Metarange:
    """An immutable state: ``id`` is the SHA-256 of its file; equal ids are equal content."""

    id: str
    ranges: tuple[FileInfo, ...]

    @cached_property
    def last_keys(self) -> list[bytes]:
        return [info.last_key for info in self.ranges]

    @property
    def first_keys(self) -> list[bytes]:
        return [info.first_key for info in self.ranges]

    @property
    def rows(self) -> int:
        return sum(info.rows for info in self.ranges)

    @property
    def size(self) -> int:
        """Return the bytes of all keys, identities and payloads."""
        return sum(info.size for info in self.ranges)

    def range_of(self, key: bytes) -> int:
        """Return the first range that does not end before the key; the number of ranges if all do."""
        return bisect_left(self.last_keys, key)

    def checked(self) -> Metarange:
        """Return this metarange if its ranges ascend, hold something and do not overlap; else raise UnsortedKeys."""
        previous = b""
        for info in self.ranges:
            if not previous < info.first_key <= info.last_key or not info.rows:
                raise UnsortedKeys(f"range {info.id} begins at {info.first_key!r}, behind one up to {previous!r}")
            previous = info.last_key
        return self


def row_of(info: FileInfo) -> Row:
    """Return how a metarange's file holds a range: under its last key, with its hash as identity."""
    numbers = (info.rows, info.size, info.file_bytes, info.tail_bytes)
    payload = uvarint(len(info.first_key)) + info.first_key + b"".join(map(uvarint, numbers))
    return info.last_key, bytes.fromhex(info.id), payload


def info_of(row: Row) -> FileInfo:
    """Return the range that a row of a metarange's file describes; a BadObject if it cannot be."""
    last_key, identity, payload = row
    if len(identity) != 32:
        raise BadObject("metarange", -1, "a range is not named by a SHA-256")
    reader = ByteReader(payload, "metarange")
    first_key = reader.text()
    rows, size, file_bytes, tail_bytes = (reader.uvarint() for _ in range(4))
    reader.expect_end()
    if not first_key or first_key > last_key or not rows or tail_bytes >= file_bytes:
        raise BadObject("metarange", -1, f"the range {identity.hex()} cannot be as it is described")
    return FileInfo(
        id=identity.hex(),
        first_key=first_key,
        last_key=last_key,
        rows=rows,
        size=size,
        file_bytes=file_bytes,
        tail_bytes=tail_bytes,
    )
