"""Writer of the chunk files of a block; files are split at the same records as by Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from engine.core.binary import encode_uvarint
from engine.core.checksums import crc32c
from engine.core.errors import LimitExceeded, UnknownFormat
from engine.formats.prometheus.chunks.chunk_files import (
    CHUNK_BYTES_MAX,
    CRC_BYTES,
    FOLDER,
    HEADER_BYTES,
    MAGIC,
    OFFSET_BITS,
    VERSION,
    file_name,
)
from engine.formats.prometheus.model import ENCODINGS, Chunk
from engine.formats.prometheus.sealed_file import SealedFile, sync_folder

FILE_BYTES = 512 << 20
LENGTH_BYTES_MAX = 5
ENCODING_BYTES = 1


class ChunkWriter:
    """Appends chunks, series by series, to the folder ``chunks`` of an unfinished block."""

    def __init__(self, block: Path, file_bytes: int = FILE_BYTES, *, is_durable: bool = True) -> None:
        self._block = block
        self._is_durable = is_durable
        self._file_bytes = file_bytes
        self._file: SealedFile | None = None
        self._files = 0
        (block / FOLDER).mkdir()

    def write(self, chunks: Sequence[Chunk]) -> list[int]:
        """Append the chunks of a series in order; return their references. Raises UnknownFormat, LimitExceeded."""
        for chunk in chunks:
            if chunk.encoding not in ENCODINGS:
                raise UnknownFormat(FOLDER, -1, f"unknown chunk encoding {chunk.encoding}")
            if (size := len(chunk.data)) > CHUNK_BYTES_MAX:
                raise LimitExceeded(FOLDER, -1, f"a chunk of {size} bytes exceeds the maximum of {CHUNK_BYTES_MAX}")
        cuts = self._cuts([len(chunk.data) for chunk in chunks])
        refs = []
        for chunk, begins_file in zip(chunks, cuts, strict=True):
            file = self._next_file() if begins_file or self._file is None else self._file
            refs.append((self._files - 1) << OFFSET_BITS | file.position)
            sealed = bytes([chunk.encoding]) + chunk.data
            file.write(encode_uvarint(len(chunk.data)) + sealed + crc32c(sealed).to_bytes(CRC_BYTES, "big"))
        return refs

    def append(self, records: memoryview, file_starts: Sequence[int]) -> None:
        """Append encoded records, whose references the caller computes; ``file_starts`` are offsets of new files."""
        edges = [0, *file_starts, len(records)]
        for position, (first, last) in enumerate(pairwise(edges)):
            if position:
                self._next_file()
            if first < last:
                assert self._file is not None
                self._file.write(records[first:last])

    def close(self) -> None:
        """Flush and close the files, and sync them if they are durable."""
        if self._file is not None:
            self._file.close()
        if self._is_durable:
            sync_folder(self._block / FOLDER)

    def discard(self) -> None:
        """Close the current file without syncing it."""
        if self._file is not None:
            self._file.discard()

    def _cuts(self, sizes: Sequence[int]) -> list[bool]:
        """Return for each chunk of a series whether a new file begins before it.

        As in Prometheus, chunks are counted with the longest length field, so that a file ends before its limit.
        """
        position = self._file.position if self._file is not None else 0
        cuts: list[bool] = []
        estimate = 0
        for size in sizes:
            share = LENGTH_BYTES_MAX + ENCODING_BYTES + size + CRC_BYTES
            estimate += share
            if position > HEADER_BYTES and True not in cuts:
                is_cut = estimate + position > self._file_bytes
            else:
                is_cut = bool(cuts) and estimate + HEADER_BYTES > self._file_bytes
            if is_cut:
                estimate = share
            cuts.append(is_cut)
        return cuts

    def _next_file(self) -> SealedFile:
        if self._file is not None:
            self._file.close()
        self._file = SealedFile(self._block / file_name(self._files), is_durable=self._is_durable)
        self._files += 1
        self._file.write(MAGIC.to_bytes(4, "big") + bytes([VERSION]) + bytes(3))
        return self._file
