"""Run a merge of Prometheus blocks, from its specification to the uploaded files of the result.

The sources are downloaded into a scratch folder and merged there, and the result is uploaded from there. Index and
chunk files are mapped, so memory does not grow with them. The ``meta.json`` that makes a block visible is not written
here; its content is returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.core.errors import BadObject, MergeCancelled, MergeRefused, Truncated
from engine.core.scratch_folders import ScratchFull, reserve_space, scratch_folder
from engine.formats.prometheus.block_reader import INDEX, META, BlockReader
from engine.formats.prometheus.chunks.chunk_files import FOLDER, file_name
from engine.formats.prometheus.errors import Inconsistent
from engine.formats.prometheus.meta import BlockMeta, decode_meta, encode_meta
from engine.lanes.tsdb.buckets.block_objects import list_block
from engine.lanes.tsdb.buckets.fetching import fetch_blocks
from engine.lanes.tsdb.buckets.index_stats import measure_index
from engine.lanes.tsdb.buckets.layout import block_key
from engine.lanes.tsdb.buckets.sections import completed_section
from engine.lanes.tsdb.buckets.uploading import upload_block
from engine.lanes.tsdb.jobs import BlockFile, TsdbMergeResult, TsdbMergeSpec, TsdbSource, WrittenBlock
from engine.lanes.tsdb.merge.merge import MergeOutcome, MergeRules, Partition, Winner, merge_blocks
from engine.lanes.tsdb.merge.verification import verify_block
from engine.protocol.messages import Progress
from engine.storage import ObjectStore

SPARE_BYTES = 64 << 20
"""Scratch space that must be free besides the files of sources and result."""
WINNERS = {"default": Winner.OURS, "prometheus": Winner.PROMETHEUS}


def run(
    spec: TsdbMergeSpec,
    store: ObjectStore,
    *,
    scratch: Path,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[Progress], None] = lambda progress: None,
    clock: Callable[[], float] = time.time,
) -> TsdbMergeResult:
    """Run a whole merge in this process; ``store`` is the bucket of ``spec.bucket_url``.

    ``progress`` counts bytes: of the sources during download and merge, of the result after its upload. ``clock``
    returns the upload time (Unix seconds). Raises a BadObject naming block, file and offset for a source that
    contradicts its bucket or ``meta.json``, StorageError, ScratchFull, MergeRefused for sources that cannot be merged,
    MergeCancelled. Scratch files are always deleted; files uploaded before an error stay until ``withdraw``.
    """
    return _Merge(spec, store, cancelled, progress, clock).run(scratch)


def source_bytes(spec: TsdbMergeSpec) -> int:
    """Return the bytes of the sources to download."""
    return sum(file.size for source in spec.sources for file in source.files)


def withdraw(spec: TsdbMergeSpec, store: ObjectStore) -> None:
    """Delete the files uploaded under this fencing token; call it only if no result of it will be reported.

    A block with a ``meta.json`` has been reported and is kept.
    """
    objects = list_block(store, spec.folder, spec.result_id())
    if META not in objects:
        for name in objects:
            store.delete(block_key(spec.folder, spec.result_id(), name))


@dataclass(frozen=True, slots=True)
class _Merge:
    spec: TsdbMergeSpec
    store: ObjectStore
    cancelled: Callable[[], bool]
    progress: Callable[[Progress], None]
    clock: Callable[[], float]

    def run(self, scratch: Path) -> TsdbMergeResult:
        metas = [_checked_source(self.spec, source) for source in self.spec.sources]
        with scratch_folder(scratch) as folder:
            self._check_room(folder)
            try:
                folders = self._fetch(folder)
                outcome = self._merge(folders, folder)
                self._check_counts(outcome, metas, folders)
            except BadObject as error:
                raise self._placed(error) from error
            if outcome.meta is None:
                return self._result(outcome, None)
            self._check_result(outcome, metas, folder)
            return self._result(outcome, self._send(outcome.meta, folder / outcome.meta.ulid))

    def _check_room(self, folder: Path) -> None:
        """Check the free scratch space. The size of a result is at most about its share of the sources."""
        fetched = source_bytes(self.spec)
        needed = fetched + fetched // self.spec.partitions + SPARE_BYTES
        if (free := reserve_space(folder, needed)) < needed:
            raise ScratchFull(str(folder), needed, free)

    def _fetch(self, folder: Path) -> list[Path]:
        """Download the sources one after another, each in several pieces at once."""
        folders: list[Path] = []
        done = 0
        for source in self.spec.sources:
            self._report("download", done)
            folders += fetch_blocks(self.store, self.spec.folder, [source], folder, is_cancelled=self.cancelled)
            done += sum(file.size for file in source.files)
        self._report("download", done)
        return folders

    def _merge(self, folders: Sequence[Path], parent: Path) -> MergeOutcome:
        total = source_bytes(self.spec)
        return merge_blocks(
            folders,
            parent,
            self.spec.result_id(),
            rules=MergeRules(winner=WINNERS[self.spec.winner]),
            partition=Partition(self.spec.partition, self.spec.partitions),
            budget_bytes=self.spec.task_memory_bytes,
            is_cancelled=self.cancelled,
            report_progress=lambda done, whole: self._report("merge", total * done // max(whole, 1)),
            is_durable=False,
        )

    def _check_counts(self, outcome: MergeOutcome, metas: Sequence[BlockMeta], folders: Sequence[Path]) -> None:
        """Check the sources' statistics against the counted sums; on a mismatch, verification finds the source."""
        if self.spec.partitions > 1:
            return  # Only a partition of the series was read.
        stats = [meta.stats for meta in metas]
        expected = (sum(each.num_series for each in stats), sum(each.num_samples for each in stats))
        found = (outcome.counts.series_read, outcome.counts.samples_read)
        if expected != found:
            for folder in folders:
                verify_block(folder, budget_bytes=self.spec.task_memory_bytes)
            raise Inconsistent(META, -1, f"series and samples read: {found}, the sources have {expected}")

    def _check_result(self, outcome: MergeOutcome, sources: Sequence[BlockMeta], parent: Path) -> None:
        """Check that the result on disk can be opened and matches its sources."""
        meta = BlockReader(parent / self.spec.result_id()).meta
        checks = {
            "samples": (meta.stats.num_samples, outcome.counts.samples_written),
            "series": (meta.stats.num_series, outcome.counts.series_written),
            "first time": (meta.min_time_ms, min(source.min_time_ms for source in sources)),
            "end": (meta.max_time_ms, max(source.max_time_ms for source in sources)),
            "parents": (sorted(each.ulid for each in meta.compaction.parents), sorted(each.ulid for each in sources)),
        }
        for what, (found, expected) in checks.items():
            if found != expected:
                raise Inconsistent(META, -1, f"the result's {what}: {found}, expected {expected}", meta.ulid)

    def _send(self, meta: BlockMeta, block: Path) -> WrittenBlock:
        files = upload_block(self.store, self.spec.folder, block, is_cancelled=self.cancelled)
        if self.cancelled():
            raise MergeCancelled(f"job {self.spec.job} cancelled")
        size = sum(file.size for file in files)
        self.progress(Progress(done=size, total=size, phase="upload"))
        return WrittenBlock(id=meta.ulid, files=files, meta=encode_meta(self._completed(meta, files, block)))

    def _completed(self, meta: BlockMeta, files: Sequence[BlockFile], block: Path) -> BlockMeta:
        """Return the metadata with the section for other readers of the bucket."""
        if self.spec.thanos is None:
            return meta
        section = completed_section(self.spec.thanos, files, stats=measure_index(block), uploaded_at_s=self.clock())
        return replace(meta, thanos=section)

    def _result(self, outcome: MergeOutcome, block: WrittenBlock | None) -> TsdbMergeResult:
        return TsdbMergeResult(
            sources=tuple(source.id for source in self.spec.sources),
            block=block,
            samples_read=outcome.counts.samples_read,
            samples_dropped=outcome.samples_dropped,
            series_read=outcome.counts.series_read,
            bytes_read=outcome.counts.bytes_read,
        )

    def _placed(self, error: BadObject) -> BadObject:
        """Return an error that names a source's place in the bucket instead of its id."""
        is_source = error.object_name in {source.id for source in self.spec.sources}
        return error.in_object(f"{self.spec.folder}{error.object_name}") if is_source else error

    def _report(self, phase: str, done: int) -> None:
        self.progress(Progress(done=done, total=source_bytes(self.spec), phase=phase))


def _checked_source(spec: TsdbMergeSpec, source: TsdbSource) -> BlockMeta:
    """Return a source's metadata. Raises BadObject unless it matches the specification and all files are listed."""
    try:
        meta = decode_meta(source.meta)
        if meta.ulid != source.id:
            raise Inconsistent(META, -1, f"the ULID {meta.ulid} is not the block's name")
        check_names({file.name for file in source.files})
    except BadObject as error:
        raise error.in_object(f"{spec.folder}{source.id}") from error
    if meta.min_time_ms < spec.range_start_ms or meta.max_time_ms > spec.range_end_ms:
        span = f"from {meta.min_time_ms} up to {meta.max_time_ms}"
        raise MergeRefused(
            f"job {spec.job} is for {spec.range_start_ms} up to {spec.range_end_ms}, block {source.id} is {span}"
        )
    return meta


def check_names(names: set[str]) -> None:
    """Raise Truncated if the index or a chunk file in between is missing from a block's listed files."""
    chunk_files = sum(name.startswith(f"{FOLDER}/") for name in names)
    for name in (INDEX, *(file_name(number) for number in range(chunk_files))):
        if name not in names:
            raise Truncated(name, -1, "the block has no such file")
