"""Reads the chunk files of a block: records by reference, each checked against its checksum."""

from __future__ import annotations

from pathlib import Path

from engine.core.errors import BadReference, LimitExceeded, UnknownFormat
from engine.formats.prometheus.file_cursor import FileCursor
from engine.formats.prometheus.mapped_file import FORGET_BYTES, MappedFile
from engine.formats.prometheus.model import ENCODINGS, Chunk

FOLDER = "chunks"
MAGIC = 0x85BD40DD
VERSION = 1
HEADER_BYTES = 8
CRC_BYTES = 4
FILES_MAX = 1 << 20
CHUNK_BYTES_MAX = 64 << 20
"""The longest float chunk (65,535 samples) has less than 2 MiB; this leaves room for histograms."""
OFFSET_BITS = 32


def file_name(number: int) -> str:
    """Return the name of a block's chunk file, counted from 0, as it stands in references and errors."""
    return f"{FOLDER}/{number + 1:06d}"


def chunk_place(ref: int) -> tuple[int, int]:
    """Return the file (from 0) and the offset in it that a reference names."""
    return ref >> OFFSET_BITS, ref & ((1 << OFFSET_BITS) - 1)


def read_chunk(data: memoryview, number: int, offset: int) -> Chunk:
    """Return the chunk at a place of file ``number``; its encoding is one that is known, its samples are not looked at.

    BadObject, naming the file, if no sound record is there.
    """
    name = file_name(number)
    if not HEADER_BYTES <= offset < len(data):
        raise BadReference(name, offset, f"no record can be there: the file has {len(data)} bytes")
    cursor = FileCursor(data, name, offset)
    size = cursor.uvarint()
    if size > CHUNK_BYTES_MAX:
        raise LimitExceeded(name, offset, f"a chunk of {size} bytes, at most {CHUNK_BYTES_MAX} are read")
    record = cursor.checked(size + 1)
    at = record.position
    if (encoding := record.u8()) not in ENCODINGS:
        raise UnknownFormat(name, at, f"encoding {encoding} of a chunk")
    return Chunk(encoding, bytes(record.take(record.left)))


def record_bytes(data: memoryview, number: int, offset: int) -> int:
    """Return how long the record at a place of file ``number`` says it is, with length and checksum."""
    if not HEADER_BYTES <= offset < len(data):
        raise BadReference(file_name(number), offset, f"no record can be there: the file has {len(data)} bytes")
    cursor = FileCursor(data, file_name(number), offset)
    size = cursor.uvarint()
    return cursor.position - offset + 1 + size + CRC_BYTES


class ChunkFiles:
    """The chunk files of a block, mapped."""

    def __init__(self, block: Path, forget_bytes: int = FORGET_BYTES) -> None:
        """Open ``chunks/000001`` and those that follow without a gap, and check their headers."""
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
        """Return the chunk at a reference; its encoding is one that is known, its samples are not looked at."""
        number, offset = chunk_place(ref)
        if number >= len(self._files):
            raise BadReference(file_name(number), offset, f"the block has {len(self._files)} chunk files")
        return read_chunk(self._files[number].data, number, offset)

    def forget_before(self, ref: int) -> None:
        """Let go of the pages of what was read before a reference; it can be read again."""
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
            raise UnknownFormat(cursor.section, 4, f"version {version}, only {VERSION} is known")
        if any(cursor.take(HEADER_BYTES - cursor.position)):
            raise UnknownFormat(cursor.section, 5, "the padding of the header is not zero")
