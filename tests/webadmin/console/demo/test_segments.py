"""Planned segments become objects in the store that any reader of the format understands."""

from __future__ import annotations

from pathlib import Path

from engine.profiles import ulids
from engine.profiles.metadata import read_footer
from engine.profiles.object_names import parse_block_key
from engine.storage import open_store
from webadmin.console.demo.plan import Recording, plan_segments
from webadmin.console.demo.segments import write_segments

END_MS = 1_750_000_000_000


def test_the_planned_segments_lie_in_the_store_with_tenants_services_and_times(
    tmp_path: Path, recordings: list[Recording]
) -> None:
    store = open_store(f"file://{tmp_path}/objects")
    plan = plan_segments(recordings, segment_count=6, end_ms=END_MS)
    seen: list[int] = []
    written = write_segments(plan, store, seen.append)

    objects = list(store.list())
    assert seen == [1, 2, 3, 4, 5, 6]
    assert (written.objects, written.bytes) == (6, sum(info.size for info in objects))
    assert written.profiles == 6 * 4  # two tenants, two services of a shard, one profile type
    for info in objects:
        key = parse_block_key(info.key)
        meta = read_footer(lambda offset, length, key=info.key: store.get_range(key, offset, length), info.size)
        planned = next(s for s in plan if s.shard == key.shard and s.time_ms == ulids.time_ms(key.id))
        wanted = {(p.tenant, dict(p.labels)["service_name"]) for p in planned.pushes}
        assert {(d.tenant, d.name) for d in meta.datasets if d.name} == wanted
        assert (meta.min_time_ms, meta.max_time_ms) == (planned.time_ms, planned.time_ms)
