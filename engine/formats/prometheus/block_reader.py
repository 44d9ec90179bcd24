"""Reader of a block in a folder: meta.json, index, chunk files and tombstones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.core.errors import BadObject, LimitExceeded, Truncated
from engine.formats.prometheus.chunks.chunk_files import ChunkFiles, chunk_place, file_name
from engine.formats.prometheus.chunks.histogram_model import HistogramChunk
from engine.formats.prometheus.chunks.histograms import decode_histograms
from engine.formats.prometheus.chunks.xor import Times, ValueBits, decode_xor
from engine.formats.prometheus.errors import Inconsistent, OutOfOrder, relocated
from engine.formats.prometheus.index.index_reader import IndexReader
from engine.formats.prometheus.mapped_file import FORGET_BYTES, MappedFile
from engine.formats.prometheus.meta import META_BYTES_MAX, BlockMeta, decode_meta
from engine.formats.prometheus.model import Chunk, ChunkMeta
from engine.formats.prometheus.tombstones import Tombstones, decode_tombstones

META, INDEX, TOMBSTONES = "meta.json", "index", "tombstones"


class BlockReader:
    """A block; opening it validates the headers of its files. Errors name the block, the file and the offset."""

    def __init__(self, folder: Path, forget_bytes: int = FORGET_BYTES) -> None:
        """Open a block; sequential reads release pages of a file in steps of ``forget_bytes``. Raises BadObject."""
        self.folder = folder
        self.name = folder.name
        try:
            self.meta = self._read_meta()
            self.index = IndexReader(self._existing(INDEX), forget_bytes)
            self.chunks = ChunkFiles(folder, forget_bytes)
            self.tombstones = self._read_tombstones()
        except BadObject as error:
            raise error.in_object(self.name) from error

    def chunk(self, meta: ChunkMeta) -> Chunk:
        """Return the record of a chunk, with its samples still encoded."""
        try:
            return self.chunks.read(meta.ref)
        except BadObject as error:
            raise error.in_object(self.name) from error

    def floats(self, meta: ChunkMeta, chunk: Chunk) -> tuple[Times, ValueBits]:
        """Return times and bit patterns of values of a float chunk (encoding 1); the times must match the index."""
        try:
            times, bits = decode_xor(chunk.data)
            _check_times(times, meta)
            return times, bits
        except BadObject as error:
            raise self._in_chunk(error, meta) from error

    def histograms(self, meta: ChunkMeta, chunk: Chunk) -> HistogramChunk:
        """Return the samples of a histogram chunk (encodings 2 and 3); the times must match the index."""
        try:
            found = decode_histograms(chunk.encoding, chunk.data)
            _check_times(np.array([sample.time_ms for sample in found.samples], np.int64), meta)
            return found
        except BadObject as error:
            raise self._in_chunk(error, meta) from error

    def _in_chunk(self, error: BadObject, meta: ChunkMeta) -> BadObject:
        number, offset = chunk_place(meta.ref)
        return relocated(error, file_name(number), offset).in_object(self.name)

    def _existing(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise Truncated(name, -1, "the block has no such file")
        return path

    def _read_meta(self) -> BlockMeta:
        path = self._existing(META)
        if (size := path.stat().st_size) > META_BYTES_MAX:
            raise LimitExceeded(META, -1, f"{size} bytes exceed the maximum of {META_BYTES_MAX}")
        return decode_meta(path.read_bytes())

    def _read_tombstones(self) -> Tombstones:
        """Return the tombstones of the block, none if the file does not exist."""
        path = self.folder / TOMBSTONES
        return decode_tombstones(MappedFile(path).data) if path.is_file() else Tombstones()


def _check_times(times: Times, meta: ChunkMeta) -> None:
    if np.any(times[1:] <= times[:-1]):
        raise OutOfOrder("", 0, "the times of the chunk's samples do not ascend")
    if (int(times[0]), int(times[-1])) != meta[:2]:
        reason = f"samples from {times[0]} to {times[-1]}, but {meta.min_time_ms} to {meta.max_time_ms} in the index"
        raise Inconsistent("", 0, reason)
