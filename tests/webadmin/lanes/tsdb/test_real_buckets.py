"""Real Prometheus blocks in both layouts are merged to the fix-point: each series keeps every sample, one time."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.formats.prometheus.model import Labels
from engine.lanes.tsdb.buckets.marks import read_mark
from engine.lanes.tsdb.buckets.model import MarkKind
from engine.lanes.tsdb.jobs import TsdbMergeResult, TsdbMergeSpec
from engine.lanes.tsdb.merge import merge_job
from engine.lanes.tsdb.merge.verification import verify_block
from engine.storage import ObjectStore
from tests import tsdb_blocks
from tests.webadmin.lanes.tsdb.conftest import CONTEXT
from tests.webadmin.lanes.tsdb.fake_bucket import FakeNode, visible
from tests.webadmin.service import Service
from webadmin.lanes.tsdb.models import Block, BucketTenant, Group
from webadmin.lanes.tsdb.policies import layout_of
from webadmin.lanes.tsdb.progress import tenant_progress
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services.buckets import adopt_bucket
from webadmin.lanes.tsdb.states import GroupState

FLOATS = ("conflicting-values", "five-intervals", "replicas-two-intervals", "three-replicas")
"""Archives without histograms and tombstones."""


@dataclass
class MergingNode(FakeNode):
    """A node that merges."""

    scratch: Path = Path()

    def merge(self, spec: TsdbMergeSpec) -> TsdbMergeResult:
        return merge_job.run(spec, self.store, scratch=self.scratch)


def unpack(foreign_data: Path, archive: str, parent: Path) -> list[Path]:
    """Return the folders of an archive's blocks."""
    with tarfile.open(foreign_data / "tsdb" / f"{archive}.tar.gz") as packed:
        packed.extractall(parent, filter="data")
    return sorted(meta.parent for meta in parent.rglob("meta.json"))


def put(store: ObjectStore, folder: str, block: Path, labels: dict[str, str] | None) -> None:
    """Upload a block, with the labels that Thanos would give it."""
    if labels is not None:
        document = json.loads((block / "meta.json").read_text())
        document["thanos"] = {"version": 1, "labels": labels, "downsample": {"resolution": 0}, "source": "sidecar"}
        (block / "meta.json").write_text(json.dumps(document))
    tsdb_blocks.put_block(store, block, folder)


def sample_times(blocks: list[Path]) -> dict[Labels, set[int]]:
    """Return when each series has samples."""
    found: dict[Labels, set[int]] = {}
    for block in blocks:
        for labels, samples in tsdb_blocks.samples(block).items():
            found.setdefault(labels, set()).update(time for time, _ in samples)
    return found


@pytest.mark.foreign_data
@pytest.mark.parametrize(("layout", "partition_series"), [("cortex", 0), ("cortex", 1), ("thanos", 0)])
def test_real_blocks_are_merged_to_the_fix_point(
    service: Service,
    store: ObjectStore,
    foreign_data: Path,
    tmp_path: Path,
    layout: str,
    partition_series: int,
) -> None:
    bucket = adopt_bucket(
        url=store.url,
        layout=layout,
        context=CONTEXT,
        consistency_delay_seconds=0,
        partition_series=1000 * partition_series,
        readers_know_partitions=layout == "cortex",
    )
    before = {}
    for archive in FLOATS:
        blocks = unpack(foreign_data, archive, tmp_path / archive)
        before[archive] = sample_times(blocks)
        for block in blocks:
            put(
                store,
                f"{archive}/" if layout == "cortex" else "",
                block,
                None if layout == "cortex" else {"a": archive},
            )
    (tmp_path / "scratch").mkdir()
    node = MergingNode(service.worker(), store, tmp_path / "scratch")
    for _ in range(10):
        rounds.scan_buckets(lambda url: store)
        rounds.plan_due(lambda url: store)
        if not node.work_off() + rounds.write_outboxes(lambda url: store).written:
            break
    assert all(tenant.is_done for tenant in tenant_progress(bucket.id))
    assert set(Group.objects.values_list("state", flat=True)) == {GroupState.DONE}
    assert Group.objects.filter(partitions__gt=1).exists() == bool(partition_series)
    for tenant in BucketTenant.objects.select_related("folder"):
        folder = tenant.folder.name
        left = visible(store, folder)
        results = []
        for row in Block.objects.filter(tenant=tenant, ulid__in=left):
            copy = tsdb_blocks.download(store, row.ulid, bytes(row.meta), tmp_path / "copies", folder)
            verify_block(copy)
            results.append(copy)
        archive = next(name for name in FLOATS if name.replace("-", "_") in tenant.name.replace("-", "_"))
        assert sample_times(results) == before[archive]
        merged = Block.objects.filter(tenant=tenant, group__state=GroupState.DONE)
        assert merged.exists()
        layout_ = layout_of(bucket)
        assert all(read_mark(store, layout_, folder, row.ulid, MarkKind.DELETION) for row in merged)
