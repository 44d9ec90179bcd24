"""What merges really write is what commits expect: of several blocks, of one, and of a part of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.formats.prometheus.meta import decode_meta, encode_meta
from engine.lanes.tsdb.merge import merge_job
from engine.lanes.tsdb.plan.model import IntervalBlock, IntervalGroup
from engine.storage import ObjectStore
from tests.tsdb_blocks import RANGE_MS, START_MS, replicas_job
from webadmin.lanes.tsdb.merge_lane import check_result


@pytest.mark.parametrize("has_descent", [True, False])
@pytest.mark.parametrize(("blocks", "partitions", "level"), [(2, 1, 4), (1, 1, 1), (1, 2, 4), (2, 2, 4)])
def test_planner_merge_and_commit_agree_on_level_and_descent(
    store: ObjectStore, tmp_path: Path, blocks: int, partitions: int, level: int, has_descent: bool
) -> None:
    """A block by itself is only cleaned up and starts over, as with Prometheus; a part of it does not."""
    spec = replicas_job("job", store, tmp_path / "blocks", count=blocks, partitions=partitions)
    sources = []
    for source in spec.sources:
        meta = decode_meta(source.meta)
        told = replace(meta.compaction, level=3, sources=meta.compaction.sources if has_descent else ())
        sources.append(replace(source, level=3, meta=encode_meta(replace(meta, compaction=told))))
    spec = replace(spec, level=3, sources=tuple(sources))
    result = merge_job.run(spec, store, scratch=tmp_path / "scratch")
    meta = check_result(spec, [source.id for source in spec.sources], result)
    assert meta is not None
    assert meta.compaction.level == level
    ids = {source.id for source in spec.sources}
    assert set(meta.compaction.sources) == ({meta.ulid} if level == 1 else ids)
    planned = [
        IntervalBlock(ulid=ulid, min_time_ms=START_MS, max_time_ms=START_MS + RANGE_MS, level=3) for ulid in sorted(ids)
    ]
    group = IntervalGroup(
        tenant="acme", group_key="", range_ms=RANGE_MS, start_ms=START_MS, blocks=tuple(planned), partitions=partitions
    )
    assert group.level == level
