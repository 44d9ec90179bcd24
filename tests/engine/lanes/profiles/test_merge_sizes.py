"""Result blocks below a cap, and sources of several shards: the samples stay the same, whatever is cut and moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.block_ids import result_ids
from engine.core.errors import MergeRefused
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.container.object_names import parse_block_key
from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec, SourceObject
from engine.lanes.profiles.merge.merge import run
from engine.lanes.profiles.merge.result_size import distribute_parts
from engine.storage import ObjectStore
from tests.engine.conftest import Implementation
from tests.engine.formats.profile_block.factories import (
    Dataset,
    ProfileRow,
    Sample,
    merge_spec,
    series_labels,
    write_block,
)
from tests.engine.formats.profile_block.results import result_meta
from tests.faults.samples import samples_in

IDS = [f"01JKT3DJRETWN25NKEFZNEP1V{number}" for number in range(10)]
SERIES = 24
STACKS = 6


def rows_of(service: str, first: int, count: int = SERIES) -> tuple[ProfileRow, ...]:
    """Rows of one series each, with stacks of their own."""
    rows = []
    for n in range(count):
        stacks = [(f"{service} {first + n} leaf {k} {'x' * 30}", "main") for k in range(STACKS)]
        samples = tuple(Sample(stack, value) for value, stack in enumerate(stacks, 1))
        labels = series_labels(service=service, pod=f"pod {n:02}")
        rows.append(ProfileRow(labels, samples, id=(1000 * first + n).to_bytes(16, "big")))
    return tuple(rows)


def segments(store: ObjectStore) -> list[SourceObject]:
    """Two segments: of acme one large service and three small ones, of beta one small one."""
    small = [Dataset("acme", name, rows_of(name, 7, 2)) for name in ("a", "b", "z")]
    beta = Dataset("beta", "web", rows_of("web", 9, 2))
    return [
        write_block(store, [Dataset("acme", "big", rows_of("big", 0)), *small, beta], id=IDS[0]),
        write_block(store, [Dataset("acme", "big", rows_of("big", 100))], id=IDS[1]),
    ]


def samples_of(store: ObjectStore, result: ProfileMergeResult):
    return samples_in(store, [(b.key, result_meta(store, result, n)) for n, b in enumerate(result.blocks)])


def of_sources(store: ObjectStore, sources: Sequence[SourceObject]):
    metas = [(s.key, replace(decode_metadata(s.metadata), size=s.size)) for s in sources]
    return samples_in(store, metas)


@pytest.mark.slow
@pytest.mark.parametrize("cap", [16_000, 10_000, 8_000])
def test_no_result_block_is_above_its_cap_and_no_sample_is_lost(
    merging: Implementation, store: ObjectStore, scratch: Scratch, cap: int
) -> None:
    sources = segments(store)
    whole = run(merge_spec(sources, fence=1), store, scratch=scratch)
    assert max(block.size for block in whole.blocks) > 16_000, "without a cap it is one block per tenant"
    assert len(whole.blocks) == 2
    capped = run(merge_spec(sources, fence=2, result_bytes_max=cap), store, scratch=scratch)
    assert all(block.size <= cap for block in capped.blocks), [block.size for block in capped.blocks]
    assert len(capped.blocks) > 3
    assert samples_of(store, capped) == samples_of(store, whole) == of_sources(store, sources)
    tenants = [decode_metadata(block.metadata).tenant for block in capped.blocks]
    assert tenants[:2] == ["acme", "beta"], "first blocks first"
    assert tenants[2:] == sorted(tenants[2:]), "then the others, tenant by tenant"
    ids = [(source.id, 0) for source in sources]
    assert [block.id for block in capped.blocks] == result_ids(ids, len(capped.blocks), 2)


def test_small_datasets_share_a_block(merging: Implementation, store: ObjectStore, scratch: Scratch) -> None:
    datasets = [Dataset("acme", f"service {n}", rows_of(f"service {n}", n, 1)) for n in range(8)]
    source = write_block(store, datasets, id=IDS[0])
    result = run(merge_spec([source], result_bytes_max=20_000), store, scratch=scratch)
    counts = [len(decode_metadata(block.metadata).datasets) - 1 for block in result.blocks]
    assert sum(counts) == 8
    assert 1 < len(counts) < 8
    names = [d.name for b in result.blocks for d in decode_metadata(b.metadata).datasets if d.name]
    assert names == sorted(names), "datasets stay in order, block after block"


def test_a_single_series_above_the_cap_stays_in_one_block(
    merging: Implementation, store: ObjectStore, scratch: Scratch
) -> None:
    source = write_block(store, [Dataset("acme", "api", rows_of("api", 0, 1))], id=IDS[0])
    [block] = run(merge_spec([source], result_bytes_max=2_000), store, scratch=scratch).blocks
    assert block.size > 2_000


def test_a_cap_that_is_not_reached_changes_no_byte(
    merging: Implementation, store: ObjectStore, scratch: Scratch
) -> None:
    sources = segments(store)
    whole = run(merge_spec(sources, fence=1), store, scratch=scratch)
    again = run(merge_spec(sources, fence=1, result_bytes_max=1 << 30), store, scratch=scratch)
    assert again == whole


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(0, 60))
def test_what_is_dealt_stays_in_order_and_within_the_room(sizes: list[int], room: int) -> None:
    blocks = distribute_parts(sizes, room)
    assert [position for block in blocks for position in block] == list(range(len(sizes)))
    for block in blocks:
        assert room == 0 or len(block) == 1 or sum(sizes[position] for position in block) <= room
    if room == 0:
        assert len(blocks) == 1


def partial_batches(store: ObjectStore) -> list[SourceObject]:
    """Blocks of level 1 that acme has left in the shards 3, 7 and 9; two rows are the same."""
    found = []
    for number, shard in enumerate((3, 7, 9)):
        rows = rows_of("web", 10 * number, 3) + rows_of("web", 500, 1)
        block = write_block(store, [Dataset("acme", "web", rows)], id=IDS[number], shard=shard, level=1, tenant="acme")
        found.append(block if shard == 9 else replace(block, shard=shard))
    return found


def test_sources_of_several_shards_become_one_block_of_the_jobs_shard(
    merging: Implementation, store: ObjectStore, scratch: Scratch
) -> None:
    sources = partial_batches(store)
    spec = merge_spec(sources, tenant="acme", shard=9, level=1, fence=4)
    assert ProfileMergeSpec.from_json(spec.to_json()) == spec
    result = run(ProfileMergeSpec.from_json(spec.to_json()), store, scratch=scratch)
    [block] = result.blocks
    assert (parse_block_key(block.key).shard, decode_metadata(block.metadata).compaction_level) == (9, 2)
    found, expected = samples_of(store, result), of_sources(store, sources)
    assert set(found) == set(expected)
    assert set(found.values()) == {1}, "a row that is in three shards is one row"
    assert sum(expected.values()) - sum(found.values()) == 2 * STACKS


def test_a_source_of_another_shard_than_specified_is_refused(store: ObjectStore, scratch: Scratch) -> None:
    sources = partial_batches(store)
    with pytest.raises(MergeRefused, match="expects shard 8"):
        run(merge_spec(sources, tenant="acme", shard=8, level=1), store, scratch=scratch)


def test_a_specification_of_the_previous_release_is_read(store: ObjectStore) -> None:
    spec = merge_spec(segments(store), fence=4)
    told = spec.to_json()
    del told["result_bytes_max"]
    assert not any("shard" in source for source in told["sources"]), "and ours of one shard says nothing new of sources"
    assert ProfileMergeSpec.from_json(told) == spec
