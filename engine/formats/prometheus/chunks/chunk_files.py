"""Reader of the chunk files of a block: records by reference, with verified checksums."""

from __future__ import annotations

from pathlib import Path

from engine.core.errors import BadReference, LimitExceeded, UnknownFormat
from engine.formats.prometheus.mapped_file import FORGET_BYTES, FileCursor, MappedFile
from engine.formats.prometheus.model import ENCODINGS, Chunk

FOLDER = "chunks"
MAGIC = 0x85BD40DD
VERSION = 1
HEADER_BYTES = 8
CRC_BYTES = 4
FILES_MAX = 1 << 20
CHUNK_BYTES_MAX = 64 << 20
"""The longest float chunk (65,535 samples) has less than 2 MiB; histograms are longer."""
OFFSET_BITS = 32


def file_name(number: int) -> str:
    """Return the relative path of a chunk file, counted from 0."""
    return f"{FOLDER}/{number + 1:06d}"


def chunk_place(ref: int) -> tuple[int, int]:
    """Return the chunk file (from 0) and the offset in it of a reference."""
    return ref >> OFFSET_BITS, ref & ((1 << OFFSET_BITS) - 1)


def read_chunk(data: memoryview, number: int, offset: int) -> Chunk:
    """Return the chunk at an offset of file ``number``; its samples are not validated.

    Raises BadObject, which names the file, if there is no valid record of a known encoding.
    """
    name = file_name(number)
    if not HEADER_BYTES <= offset < len(data):
        raise BadReference(name, offset, f"the offset of a record is outside of the {len(data)} bytes of the file")
    cursor = FileCursor(data, name, offset)
    size = cursor.uvarint()
    if size > CHUNK_BYTES_MAX:
        raise LimitExceeded(name, offset, f"a chunk of {size} bytes exceeds the maximum of {CHUNK_BYTES_MAX}")
    record = cursor.checked(size + 1)
    at = record.position
    if (encoding := record.u8()) not in ENCODINGS:
        raise UnknownFormat(name, at, f"unknown chunk encoding {encoding}")
    return Chunk(encoding, bytes(record.take(record.left)))


def record_bytes(data: memoryview, number: int, offset: int) -> int:
    """Return the size of the record at an offset of file ``number`` by its length field, with length and checksum."""
    if not HEADER_BYTES <= offset < len(data):
        reason = f"the offset of a record is outside of the {len(data)} bytes of the file"
        raise BadReference(file_name(number), offset, reason)
    cursor = FileCursor(data, file_name(number), offset)
    size = cursor.uvarint()
    return cursor.position - offset + 1 + size + CRC_BYTES


class ChunkFiles:
    """The memory-mapped chunk files of a block."""

    def __init__(self, block: Path, forget_bytes: int = FORGET_BYTES) -> None:
        """Open ``chunks/000001`` and the consecutive files after it, and verify their headers."""
        self._files: list[MappedFile] = []
        self._reading = 0
        while (path := block / file_name(len(self._files))).is_file() and len(self._files) < FILES_MAX:
            self._files.append(MappedFile(path, forget_bytes))
            self._check_header(len(self._files) - 1)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def contents(self) -> list[memoryview]:
        """Return the bytes of each file."""
        return [file.data for file in self._files]

    def read(self, ref: int) -> Chunk:
        """Return the chunk at a reference. Raises the errors of ``read_chunk``."""
        number, offset = chunk_place(ref)
        if number >= len(self._files):
            raise BadReference(file_name(number), offset, f"the block has {len(self._files)} chunk files")
        return read_chunk(self._files[number].data, number, offset)

    def forget_before(self, ref: int) -> None:
        """Release the pages before a reference; they can be read again."""
        number, offset = chunk_place(ref)
        if number >= len(self._files):
            return
        for left in range(self._reading, number):
            self._files[left].forget()
        self._reading = number
        self._files[number].forget_before(offset)

    def _check_header(self, number: int) -> None:
        cursor = FileCursor(self._files[number].data, file_name(number))
        if (magic := cursor.u32()) != MAGIC:
            raise UnknownFormat(cursor.section, 0, f"magic number {magic:08x}, expected {MAGIC:08x}")
        if (version := cursor.u8()) != VERSION:
            raise UnknownFormat(cursor.section, 4, f"version {version} is not supported, expected {VERSION}")
        if any(cursor.take(HEADER_BYTES - cursor.position)):
            raise UnknownFormat(cursor.section, 5, "the padding of the header is not zero")
