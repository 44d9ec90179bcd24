"""Writer of a block; its folder gets its final name only when the block is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from engine.formats.prometheus.block_reader import INDEX, META, TOMBSTONES
from engine.formats.prometheus.chunks.chunk_writer import FILE_BYTES, ChunkWriter
from engine.formats.prometheus.index.index_reader import Numbers
from engine.formats.prometheus.index.index_writer import BODY_BYTES_MAX, IndexWriter
from engine.formats.prometheus.index.series_batch import SeriesBatch
from engine.formats.prometheus.index.symbol_union import SymbolUnion
from engine.formats.prometheus.merge_stops import MergedSeries
from engine.formats.prometheus.meta import BlockMeta, encode_meta
from engine.formats.prometheus.model import Chunk
from engine.formats.prometheus.sealed_file import SealedFile, sync_folder
from engine.formats.prometheus.tombstones import encode_tombstones

UNFINISHED = ".tmp-for-creation"


class BlockWriter:
    """Writes a block. Use it in a ``with`` statement, which removes an unfinished block at its end.

    For each series, ``write_chunks`` returns the references of its chunks; ``add_series`` adds batches of series.
    """

    def __init__(
        self,
        parent: Path,
        ulid: str,
        symbols: Iterable[bytes] | SymbolUnion,
        *,
        chunk_file_bytes: int = FILE_BYTES,
        label_indices: bool = True,
        table_bytes_max: int = BODY_BYTES_MAX,
        is_durable: bool = True,
    ) -> None:
        """Create a block with these ascending symbols.

        ``is_durable`` false skips fsync, for temporary folders. ``label_indices`` and ``table_bytes_max`` are those of
        ``IndexWriter``.
        """
        self._target = parent / ulid
        self._ulid = ulid
        self.folder = parent / f"{ulid}{UNFINISHED}"
        self.folder.mkdir(parents=True)
        self._samples = self._chunk_count = 0
        self._is_durable, self._is_finished = is_durable, False
        try:
            self._chunks = ChunkWriter(self.folder, chunk_file_bytes, is_durable=is_durable)
            self._index = IndexWriter(
                self.folder / INDEX,
                symbols,
                label_indices=label_indices,
                table_bytes_max=table_bytes_max,
                is_durable=is_durable,
            )
        except BaseException:
            shutil.rmtree(self.folder)
            raise

    def write_chunks(self, chunks: Sequence[Chunk]) -> list[int]:
        """Append the chunks of the next series and return their references."""
        refs = self._chunks.write(chunks)
        self._samples += sum(chunk.sample_count for chunk in chunks)
        self._chunk_count += len(chunks)
        return refs

    def add_merged(self, merged: MergedSeries, samples: int) -> None:
        """Append series in label order and the records of their chunks, which have ``samples`` samples in total."""
        self._chunks.append(merged.records, merged.file_starts)
        self._samples += samples
        self._chunk_count += len(merged.batch.chunk_refs)
        self._index.add(merged.batch)

    def add_series(self, batch: SeriesBatch) -> Numbers:
        """Append series in label order and return their ids."""
        return self._index.add(batch)

    def finish(
        self,
        meta: BlockMeta,
        tombstones: Sequence[tuple[int, int, int]] = (),
        pause: Callable[[], None] = lambda: None,
    ) -> BlockMeta:
        """Complete the block under its name; return ``meta`` with its ULID and its counts.

        The numbers of float and histogram samples are those of ``meta``. ``tombstones`` are (series id, first deleted
        time, last deleted time); ``pause`` is called periodically.
        """
        self._chunks.close()
        self._index.finish(pause)
        stats = replace(
            meta.stats,
            num_samples=self._samples,
            num_series=self._index.series_count,
            num_chunks=self._chunk_count,
            num_tombstones=len(tombstones),
        )
        complete = replace(meta, ulid=self._ulid, stats=stats)
        # meta.json is written last: readers treat a block with it as complete.
        for name, data in ((TOMBSTONES, encode_tombstones(tombstones)), (META, encode_meta(complete))):
            with SealedFile(self.folder / name, is_durable=self._is_durable) as file:
                file.write(data)
        if self._is_durable:
            sync_folder(self.folder)
        os.rename(self.folder, self._target)
        if self._is_durable:
            sync_folder(self._target.parent)
        self._is_finished = True
        return complete

    def __enter__(self) -> BlockWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_finished:
            self._chunks.discard()
            self._index.discard()
            shutil.rmtree(self.folder, ignore_errors=True)
