"""Merge whole Prometheus blocks, each in its own folder, into one block.

Blocks may overlap in time (replicas), follow one another, or both. Only the mapping of symbols is held in memory;
series are read in batches of some hundreds from each source, chunks from mapped files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.core.errors import LimitExceeded, MergeCancelled, MergeRefused
from engine.formats.prometheus.block_writer import BlockWriter
from engine.formats.prometheus.chunks.chunk_files import OFFSET_BITS
from engine.formats.prometheus.index.series_batch import SeriesBatch
from engine.formats.prometheus.index.symbol_union import BYTES_PER_SYMBOL, SymbolUnion, symbol_bytes_max
from engine.formats.prometheus.merge_stops import OVERLAY_FILE, MergeStop
from engine.formats.prometheus.meta import BlockStats
from engine.lanes.tsdb.merge.merge_model import MergeOutcome, MergeRules, Partition, Winner, merged_meta
from engine.lanes.tsdb.merge.merge_source import MergeSource
from engine.lanes.tsdb.merge.overlaps import merge_chunks
from engine.lanes.tsdb.merge.series_budget import series_budget
from engine.lanes.tsdb.merge.series_merge import SeriesMerge
from engine.lanes.tsdb.merge.verification import verify_block

__all__ = ["MergeOutcome", "MergeRules", "Partition", "Winner", "merge_blocks"]

WRITE_BYTES = 1 << 20
TABLE_TIMES = 3
"""Upper bound of the growth of the postings offset table: entries with larger offsets take a few more bytes."""
FORGET_BYTES_MIN, FORGET_BYTES_MAX = 256 << 10, 1 << 20
"""Bounds of the bytes mapped of each source file, which is read sequentially."""
WHOLE = Partition()


def never_cancelled() -> bool:
    """Return False: the default of ``is_cancelled``."""
    return False


def ignore_progress(done: int, whole: int) -> None:
    """Ignore progress: the default of ``report_progress``."""


def merge_blocks(
    folders: Sequence[Path],
    parent: Path,
    ulid: str,
    *,
    rules: MergeRules,
    partition: Partition = WHOLE,
    budget_bytes: int,
    is_cancelled: Callable[[], bool] = never_cancelled,
    report_progress: Callable[[int, int], None] = ignore_progress,
    is_durable: bool = True,
) -> MergeOutcome:
    """Merge the blocks in ``folders`` into ``parent/ulid``; the order of the folders does not matter.

    ``report_progress`` receives the merged and the total bytes of the series sections. With ``is_durable`` False the
    result is not synced to disk, for results that are uploaded and deleted. Nothing is left behind unless the merge
    succeeds. Raises a BadObject naming block, file and offset if a source is invalid, MergeRefused if the sources
    cannot be merged or exceed the budget, MergeCancelled.
    """
    if not folders:
        raise MergeRefused("no blocks to merge")
    forget_bytes = min(max(budget_bytes // (8 * len(folders)), FORGET_BYTES_MIN), FORGET_BYTES_MAX)
    sources = [MergeSource(folder, partition, forget_bytes) for folder in folders]
    # Under Prometheus' rule source order decides between equal times; it must not depend on the caller.
    sources.sort(key=lambda source: (source.meta.min_time_ms, source.name))
    names = [source.name for source in sources]
    if len(set(names)) != len(names):
        raise MergeRefused(f"a block is listed twice: {', '.join(names)}")
    for source in sources:
        source.check_symbol_budget(budget_bytes)
    symbol_bytes = BYTES_PER_SYMBOL * sum(len(source.block.index.symbols) for source in sources)
    if symbol_bytes > symbol_bytes_max(budget_bytes):
        raise MergeRefused(f"the symbol mapping takes {symbol_bytes} bytes of a budget of {budget_bytes}")
    return _Merge(sources, rules, partition, budget_bytes, is_cancelled, report_progress, is_durable).run(parent, ulid)


class _Merge:
    def __init__(
        self,
        sources: Sequence[MergeSource],
        rules: MergeRules,
        partition: Partition,
        budget_bytes: int,
        is_cancelled: Callable[[], bool],
        report_progress: Callable[[int, int], None],
        is_durable: bool,
    ) -> None:
        self._sources = sources
        self._rules = rules
        self._partition = partition
        self._budget_bytes = budget_bytes
        self._budget = series_budget(budget_bytes)
        self._is_cancelled = is_cancelled
        self._report_progress = report_progress
        self._is_durable = is_durable
        self._done = [0] * len(sources)
        self._whole = sum(source.series_bytes for source in sources)
        files = [(source.name, source.block.chunks.contents) for source in sources]
        self._series = SeriesMerge(files, rules, self._budget)

    def run(self, parent: Path, ulid: str) -> MergeOutcome:
        try:
            return self._run(parent, ulid)
        except LimitExceeded as error:
            if error.object_name:
                raise
            # Valid sources cannot make a result this large: verification finds the invalid one.
            for source in self._sources:
                verify_block(source.block.folder, budget_bytes=self._budget_bytes)
            raise MergeRefused(f"the result of these blocks exceeds a limit: {error}") from error

    def _run(self, parent: Path, ulid: str) -> MergeOutcome:
        union = self._symbols()
        rules, counts = self._rules, self._series.counts
        with BlockWriter(
            parent,
            ulid,
            union,
            chunk_file_bytes=rules.chunk_file_bytes,
            label_indices=rules.label_indices,
            table_bytes_max=TABLE_TIMES * sum(source.block.index.table_bytes for source in self._sources),
            is_durable=self._is_durable,
        ) as writer:
            self._write_series(writer, union)
            counts.samples_read += sum(source.samples_deleted for source in self._sources)
            counts.series_read += sum(source.series_left_out for source in self._sources)
            counts.bytes_read += sum(source.block.index.size for source in self._sources)
            if not counts.series_written:
                return MergeOutcome(None, counts)
            meta = merged_meta(ulid, [source.meta for source in self._sources], is_part=not self._partition.is_whole)
            known = [source.meta.stats for source in self._sources]
            if any(stats.num_float_samples or stats.num_histogram_samples for stats in known):
                histograms = counts.samples_written - counts.float_samples_written
                stats = BlockStats(num_float_samples=counts.float_samples_written, num_histogram_samples=histograms)
                meta = replace(meta, stats=stats)
            return MergeOutcome(writer.finish(meta, pause=self._stop_if_cancelled), counts)

    def _symbols(self) -> SymbolUnion:
        tables = [source.block.index.symbols for source in self._sources]
        if self._partition.is_whole:
            return SymbolUnion(tables, None)
        used = []
        for source in self._sources:
            self._stop_if_cancelled()
            used.append(source.used_symbols())
        return SymbolUnion(tables, used)

    def _write_series(self, writer: BlockWriter, union: SymbolUnion) -> None:
        series = self._series
        batches = [
            source.series(translation) for source, translation in zip(self._sources, union.translations, strict=True)
        ]
        written = 0
        while True:
            self._stop_if_cancelled()
            stop, number = series.run(WRITE_BYTES)
            if stop is MergeStop.NEEDS:
                self._load(number, next(batches[number], None))
            elif stop is MergeStop.PLAIN:
                series.put(merge_chunks(series.plain(), self._rules, self._budget))
            else:
                writer.add_merged(series.take(), series.counts.samples_written - written)
                written = series.counts.samples_written
                self._report_progress(sum(self._done), self._whole)
            if stop is MergeStop.DONE:
                return

    def _load(self, number: int, loaded: tuple[SeriesBatch, bytes] | None) -> None:
        """Load a source's next series into the merge, and release the mapped chunks before them."""
        if loaded is None:
            self._series.end(number)
            self._done[number] = self._sources[number].series_bytes
            return
        batch, overlay = loaded
        source = self._sources[number]
        self._series.load(number, batch, overlay)
        self._done[number] = source.position_of(batch)
        stored = batch.chunk_refs
        if overlay:
            stored = stored[stored < OVERLAY_FILE << OFFSET_BITS]
        if len(stored):
            source.block.chunks.forget_before(int(stored[0]))

    def _stop_if_cancelled(self) -> None:
        if self._is_cancelled():
            raise MergeCancelled("the merge of blocks was cancelled")
