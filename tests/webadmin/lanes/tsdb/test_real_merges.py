"""Real blocks in an adopted bucket, merged by what a node runs: the service takes the results, no sample is lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.formats.prometheus.model import Labels
from engine.lanes.tsdb.jobs import TsdbMergeResult, TsdbMergeSpec
from engine.lanes.tsdb.merge import merge_job
from engine.lanes.tsdb.merge.verification import verify_block
from engine.lanes.tsdb.specs import read_tsdb_spec
from engine.protocol.messages import FailureReason
from engine.storage import ObjectStore
from tasks.batches import failure_reason
from tests.engine.lanes.tsdb.conftest import RealBlocks, all_real_blocks
from tests.tsdb_blocks import download, put_block, samples
from tests.webadmin.lanes.tsdb.fake_bucket import FakeNode, origins, visible
from tests.webadmin.lanes.tsdb.test_fix_point import run_rounds
from tests.webadmin.service import Service
from webadmin.lanes.tsdb.models import Bucket

__all__ = ["all_real_blocks"]

FOLDER = "acme/"
Samples = dict[Labels, dict[int, float]]


@dataclass
class RealNode(FakeNode):
    """A node that merges as real ones do, specifications and results going over the wire's form."""

    scratch: Path

    def merge(self, spec: TsdbMergeSpec) -> TsdbMergeResult:
        told = read_tsdb_spec(json.loads(json.dumps(spec.to_json())))
        return merge_job.run(told, self.store, scratch=self.scratch)


@pytest.fixture
def node(service: Service, store: ObjectStore, tmp_path: Path) -> RealNode:
    return RealNode(service.worker(), store, tmp_path / "scratch")


def united(blocks: list[Path]) -> Samples:
    """Return every sample of any of these blocks; those of equal time are equal."""
    found: Samples = {}
    for block in blocks:
        for series, pairs in samples(block).items():
            known = found.setdefault(series, {})
            for time_ms, value in pairs:
                assert known.setdefault(time_ms, value) == value
    return found


def downloaded(store: ObjectStore, parent: Path) -> list[Path]:
    return [
        download(store, ulid, store.get(f"{FOLDER}{ulid}/meta.json"), parent, FOLDER)
        for ulid in sorted(visible(store, FOLDER))
    ]


@pytest.mark.foreign_data
@pytest.mark.parametrize("parts", [1, 4])
def test_a_bucket_of_real_blocks_is_merged_to_the_end_and_keeps_every_sample(
    all_real_blocks: dict[str, RealBlocks],
    bucket: Bucket,
    store: ObjectStore,
    node: RealNode,
    tmp_path: Path,
    parts: int,
) -> None:
    Bucket.objects.update(partition_series=0 if parts == 1 else 30, readers_know_partitions=True)
    sources = all_real_blocks["five-intervals"].folders()
    for source in sources:
        put_block(store, source, FOLDER)
    jobs = run_rounds(store, node)
    results = downloaded(store, tmp_path / "results")
    if parts == 1:
        assert len(results) == 1
        assert jobs == 6  # five intervals of two replicas, then one of the five
    else:
        assert len(results) > 1
    for result in results:
        verify_block(result)
    assert origins(store, FOLDER, [result.name for result in results]) == {source.name for source in sources}
    assert united(results) == united(sources)


@pytest.mark.foreign_data
def test_a_damaged_block_is_named_as_the_service_knows_it(
    all_real_blocks: dict[str, RealBlocks], bucket: Bucket, store: ObjectStore, node: RealNode
) -> None:
    source, bad = (put_block(store, folder, FOLDER) for folder in all_real_blocks["three-replicas"].folders()[:2])
    data = bytearray(store.get(f"{FOLDER}{bad.id}/chunks/000001"))
    data[1000] ^= 1
    store.put(f"{FOLDER}{bad.id}/chunks/000001", bytes(data))
    reasons: list[FailureReason] = []

    def failing(spec: TsdbMergeSpec) -> TsdbMergeResult:
        assert {each.id for each in spec.sources} == {source.id, bad.id}
        try:
            return RealNode.merge(node, spec)
        except Exception as error:
            reasons.append(failure_reason(error))
            raise

    node.merge = failing  # type: ignore[method-assign]
    with pytest.raises(Exception, match=bad.id):
        run_rounds(store, node)
    (reason,) = reasons
    assert (reason.object, reason.section) == (f"{FOLDER}{bad.id}", "chunks/000001")
    assert reason.error_class == "ChecksumMismatch"
    assert 0 <= reason.offset <= 1000
