"""Read and write the catalog's files in an object store: named by the hash of their bytes, verified on read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from engine.core.errors import BadObject, ChecksumMismatch, Truncated
from engine.formats.ranges.entry_blocks import decode_block, encode_rows
from engine.formats.ranges.layout import HEADER_BYTES, Kind
from engine.formats.ranges.metarange import Metarange, info_of, row_of
from engine.formats.ranges.model import Row
from engine.formats.ranges.range_file import FileBuilder, FileIndex, FileInfo, check_block, read_footer, read_index
from engine.storage import InvalidRange, ObjectStore

FOLDERS = {Kind.RANGE: "ranges", Kind.METARANGE: "metaranges"}


class CatalogFiles:
    """Ranges and metaranges of one repository under a prefix of a store (``""`` or ending in ``/``).

    Reads raise a BadObject that names the key if a file is damaged, and ObjectNotFound if it is missing.
    """

    def __init__(self, store: ObjectStore, prefix: str = "") -> None:
        self.store, self.prefix = store, prefix

    def key(self, kind: bytes, id_: str) -> str:
        """Return the object key of a file."""
        return f"{self.prefix}{FOLDERS[kind]}/{id_[:2]}/{id_}"

    def put(self, kind: bytes, info: FileInfo, data: bytes) -> None:
        """Write a file. An existing one is written again, so that its age is renewed for garbage collection."""
        self.store.put(self.key(kind, info.id), data)

    def write_metarange(self, ranges: Iterable[FileInfo]) -> tuple[Metarange, int]:
        """Write the metarange of ascending ranges; return it and its size in bytes.

        Raises UnsortedKeys if ranges overlap.
        """
        metarange, data = metarange_of(ranges)
        self.store.put(self.key(Kind.METARANGE, metarange.id), data)
        return metarange, len(data)

    def read_metarange(self, id_: str) -> Metarange:
        """Read a whole metarange."""
        key = self.key(Kind.METARANGE, id_)
        data = self.store.get(key)
        try:
            if hashlib.sha256(data).hexdigest() != id_:
                raise ChecksumMismatch("metarange", -1, "the SHA-256 of the bytes is not the file's name")
            rows = [row for block in _blocks_of(data, Kind.METARANGE) for row in decode_block(block)]
            return Metarange(id=id_, ranges=tuple(info_of(row) for row in rows))
        except BadObject as error:
            raise error.in_object(key) from error

    def read_index(self, info: FileInfo) -> FileIndex:
        """Read the index of a range in one request."""
        key = self.key(Kind.RANGE, info.id)
        try:
            tail = self._bytes(key, info.file_bytes - info.tail_bytes, info.tail_bytes)
            return read_index(tail, info.file_bytes, Kind.RANGE)
        except BadObject as error:
            raise error.in_object(key) from error

    def read_blocks(self, info: FileInfo, index: FileIndex, first: int, count: int) -> list[list[Row]]:
        """Read consecutive blocks of a range in one request; return the rows of each."""
        key = self.key(Kind.RANGE, info.id)
        places = index.places[first : first + count]
        start = places[0].offset
        try:
            data = self._bytes(key, start, sum(place.size for place in places))
            return [
                decode_block(check_block(data[place.offset - start : place.offset - start + place.size], place))
                for place in places
            ]
        except BadObject as error:
            raise error.in_object(key) from error

    def whole_blocks(self, info: FileInfo) -> Iterator[bytes]:
        """Read a whole range in one request and yield its verified blocks."""
        key = self.key(Kind.RANGE, info.id)
        data = self.store.get(key)
        try:
            if len(data) != info.file_bytes:
                raise Truncated("range", len(data), f"{len(data)} bytes, expected {info.file_bytes}")
            yield from _blocks_of(data, Kind.RANGE)
        except BadObject as error:
            raise error.in_object(key) from error

    def verify(self, info: FileInfo) -> None:
        """Read a range and check that its bytes and rows match its name and description. Raises BadObject."""
        key = self.key(Kind.RANGE, info.id)
        data = self.store.get(key)
        try:
            if hashlib.sha256(data).hexdigest() != info.id:
                raise ChecksumMismatch("range", -1, "the SHA-256 of the bytes is not the file's name")
            rows = [row for block in _blocks_of(data, Kind.RANGE) for row in decode_block(block)]
            keys = [row[0] for row in rows]
            if keys[:1] != [info.first_key] or keys[-1] != info.last_key or len(rows) != info.rows:
                raise BadObject("range", -1, "the rows do not match the metarange's description")
            if not all(identity for _, identity, _ in rows):
                raise BadObject("range", -1, "a range must not contain tombstones")
        except BadObject as error:
            raise error.in_object(key) from error

    def _bytes(self, key: str, offset: int, length: int) -> bytes:
        try:
            return self.store.get_range(key, offset, length)
        except InvalidRange as error:
            raise Truncated("range", offset, "the file is shorter than the metarange states") from error


def metarange_of(ranges: Iterable[FileInfo]) -> tuple[Metarange, bytes]:
    """Return the metarange of ascending ranges and its bytes, without writing anything."""
    listed = tuple(ranges)
    metarange = Metarange(id="", ranges=listed).checked()
    files: list[tuple[FileInfo, bytes]] = []
    builder = FileBuilder(Kind.METARANGE, lambda info, data: files.append((info, data)))
    if not encode_rows((row_of(info) for info in listed), builder, None):
        builder.cut()
    info, data = files[0]
    return Metarange(id=info.id, ranges=metarange.ranges), data


def _blocks_of(data: bytes, kind: bytes) -> Iterator[bytes]:
    tail_bytes = read_footer(data[-32:], kind)
    if not 32 < tail_bytes <= len(data) - HEADER_BYTES:
        raise Truncated("footer", 16, "the index does not fit into the file")
    index = read_index(data[-tail_bytes:], len(data), kind)
    for place in index.places:
        yield check_block(data[place.offset : place.offset + place.size], place)
