"""A merge whose n-th call of the object store fails, for every n: it says so, harms nothing, the next run is whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.checksums import crc32c
from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from engine.lanes.profiles.merge import merge
from engine.storage import ObjectStore, StorageError, open_store
from tests.faults.failing_store import FailingStore, Fault
from tests.segments import segment_job


class Bench:
    """A store with the sources of one job; each run has a token of its own, as runs of a job do."""

    def __init__(self, folder: Path) -> None:
        self.store: ObjectStore = open_store(str(folder / "objects"))
        self.spec = segment_job(self.store, "job", 1, count=2)
        self.sources = self.objects()
        self._folder = folder
        self._runs = 0

    def objects(self) -> dict[str, int]:
        return {info.key: crc32c(self.store.get(info.key)) for info in self.store.list()}

    def run(self, *faults: Fault) -> tuple[ProfileMergeResult, FailingStore]:
        self._runs += 1
        scratch = self._folder / f"scratch-{self._runs}"
        scratch.mkdir()
        spec: ProfileMergeSpec = replace(self.spec, fence=self._runs)
        store = FailingStore(self.store, *faults)
        return merge.run(spec, store, scratch=Scratch(scratch)), store

    def remove_results(self) -> None:
        for key in set(self.objects()) - set(self.sources):
            self.store.delete(key)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("is_late", [False, True], ids=["not done", "done, answer lost"])
def test_whichever_call_fails_the_sources_stay_and_another_run_writes_everything(bench: Bench, is_late: bool) -> None:
    good, store = bench.run()
    expected = {block.key: block.crc32c for block in good.blocks}
    assert bench.objects() == bench.sources | expected
    calls = Counter(operation for operation, _ in store.calls)
    assert sum(calls.values()) >= 6, calls
    if is_late:
        del calls["open_writer"]  # it asks the store nothing yet, so no answer can be lost
    for operation, count in calls.items():
        for call in range(1, count + 1):
            bench.remove_results()
            with pytest.raises(StorageError, match="failed on demand"):
                bench.run(Fault(operation, call=call, is_late=is_late))
            left = bench.objects()
            assert left.items() >= bench.sources.items(), "the sources are as they were"
            again, _ = bench.run()
            wanted = {block.key: block.crc32c for block in again.blocks}
            assert bench.objects() == left | wanted, "and what the failed run left is nobody's result"
            assert not set(wanted) & set(left)
