"""Merges in this process without Spark: runs the engine's ``run`` of each kind, one job after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.core.thread_priority import run_at_low_priority
from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.catalog import compact_job
from engine.lanes.catalog.jobs import CatalogCompactSpec
from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.lanes.profiles.merge import merge as profile_merge
from engine.lanes.tables.jobs import TableMergeSpec
from engine.lanes.tables.merge import merge_job as table_merge
from engine.lanes.tsdb.jobs import TsdbMergeSpec
from engine.lanes.tsdb.merge import merge_job as tsdb_merge
from engine.protocol.messages import Progress
from engine.storage import ObjectStore, StorageError, cached_store, open_store
from tasks.merger import Outcome
from tasks.specs import Spec, read_specs


class EngineMerger:
    """Runs each batch in the calling thread; scratch files are written below ``scratch``."""

    def __init__(self, store_url: str, scratch: Path) -> None:
        self._store_url = store_url
        self._scratch = scratch
        self._store: ObjectStore | None = None

    def start(self) -> None:
        """Open the store of profiles; stores of other lanes are opened by the first job that names them."""
        self._store = open_store(self._store_url)

    def merge(
        self,
        batch: str,
        specs: Mapping[str, dict[str, Any]],
        *,
        cancelled: Callable[[str], bool],
        progress: Callable[[str, Progress], None],
    ) -> Mapping[str, Outcome]:
        """See ``Merger.merge``."""
        readable, outcomes = read_specs(specs)
        for spec in readable:
            try:
                outcomes[spec.job] = self._merge_one(spec, cancelled, progress)
            except Exception as error:  # noqa: BLE001  an error of a job is the outcome of that job only
                outcomes[spec.job] = error
        return outcomes

    def interrupt(self, batch: str) -> None:
        """Do nothing: a merge polls ``cancelled`` itself."""

    def stop(self) -> None:
        """Do nothing: this merger holds no resources."""

    def _merge_one(
        self, spec: Spec, cancelled: Callable[[str], bool], progress: Callable[[str, Progress], None]
    ) -> dict[str, Any]:
        if isinstance(spec, TsdbMergeSpec):
            return self._merge_blocks(spec, lambda: cancelled(spec.job), lambda report: progress(spec.job, report))
        if isinstance(spec, TableMergeSpec):
            return self._merge_tables(spec, lambda: cancelled(spec.job), lambda report: progress(spec.job, report))
        if isinstance(spec, CatalogCompactSpec):
            return self._compact_branch(spec, lambda: cancelled(spec.job), lambda report: progress(spec.job, report))
        return self._merge_profiles(spec, lambda: cancelled(spec.job))

    def _merge_blocks(
        self, spec: TsdbMergeSpec, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> dict[str, Any]:
        store = cached_store(spec.bucket_url)
        try:
            return tsdb_merge.run(spec, store, scratch=self._scratch, cancelled=cancelled, progress=progress).to_json()
        except Exception:
            with suppress(StorageError):  # the error of the merge is the one to report
                tsdb_merge.withdraw(spec, store)
            raise

    def _merge_tables(
        self, spec: TableMergeSpec, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> dict[str, Any]:
        """Merge Parquet files; a failed merge deletes its own output."""
        store = cached_store(spec.url)
        return table_merge.run(spec, store, scratch=self._scratch, cancelled=cancelled, progress=progress).to_json()

    def _compact_branch(
        self, spec: CatalogCompactSpec, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> dict[str, Any]:
        """Compact the tokens of a branch at idle priority; files of a failed run are deleted by the sweep."""
        assert self._store is not None
        store = self._store

        def compact() -> dict[str, Any]:
            def report(done: int, total: int) -> None:
                progress(Progress(done=done, total=total, phase="merge"))

            return compact_job.run(spec, store, cancelled=cancelled, progress=report).to_json()

        return run_at_low_priority(compact)

    def _merge_profiles(self, spec: ProfileMergeSpec, cancelled: Callable[[], bool]) -> dict[str, Any]:
        assert self._store is not None
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            return profile_merge.run(spec, self._store, scratch=Scratch(Path(folder)), cancelled=cancelled).to_json()
