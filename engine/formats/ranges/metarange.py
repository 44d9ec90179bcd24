"""Metaranges: ascending lists of ranges, each of which is one state of all keys."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

from engine.core.binary import ByteReader, encode_uvarint
from engine.core.errors import BadObject
from engine.formats.ranges.errors import UnsortedKeys
from engine.formats.ranges.model import Row
from engine.formats.ranges.range_file import FileInfo


@dataclass(frozen=True)
class Metarange:
    """An immutable list of ranges. ``id`` is the SHA-256 of its file, so equal ids mean equal contents."""

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
        """Return the index of the first range that does not end before the key, or the number of ranges."""
        return bisect_left(self.last_keys, key)

    def checked(self) -> Metarange:
        """Return this metarange. Raises UnsortedKeys unless its ranges ascend, do not overlap and are not empty."""
        previous = b""
        for info in self.ranges:
            if not previous < info.first_key <= info.last_key or not info.rows:
                raise UnsortedKeys(f"range {info.id} from {info.first_key!r} is empty or does not follow {previous!r}")
            previous = info.last_key
        return self


def row_of(info: FileInfo) -> Row:
    """Return the row of a range in a metarange's file: its last key, its hash as identity, and its numbers."""
    numbers = (info.rows, info.size, info.file_bytes, info.tail_bytes)
    payload = encode_uvarint(len(info.first_key)) + info.first_key + b"".join(map(encode_uvarint, numbers))
    return info.last_key, bytes.fromhex(info.id), payload


def info_of(row: Row) -> FileInfo:
    """Return the range of a row of a metarange's file. Raises BadObject."""
    last_key, identity, payload = row
    if len(identity) != 32:
        raise BadObject("metarange", -1, "the id of a range is not a SHA-256")
    reader = ByteReader(payload, "metarange")
    first_key = reader.text()
    rows, size, file_bytes, tail_bytes = (reader.uvarint() for _ in range(4))
    reader.expect_end()
    if not first_key or first_key > last_key or not rows or tail_bytes >= file_bytes:
        raise BadObject("metarange", -1, f"the description of range {identity.hex()} is inconsistent")
    return FileInfo(
        id=identity.hex(),
        first_key=first_key,
        last_key=last_key,
        rows=rows,
        size=size,
        file_bytes=file_bytes,
        tail_bytes=tail_bytes,
    )
