"""Rows I2 to I8 of the sheet. A shard of a tenant in a partition is no thing of its own here, but what its rows say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.block_factory import block_meta, ulid
from tests.webadmin.lanes.profiles.test_queries import query
from tests.webadmin.lanes.profiles.test_retention import CONTEXT, keep, live, old_block
from tests.webadmin.service import Service, check_invariants
from webadmin.lanes.profiles.models import Block, Dataset
from webadmin.lanes.profiles.queries import find_blocks, tenant_statistics
from webadmin.lanes.profiles.services.retain import apply_retention

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def add_spanning(service: Service, created_ms: int, low_ms: int, high_ms: int, *, shard: int = 1) -> str:
    """Register a block of acme whose data has these times."""
    meta = block_meta(ulid(created_ms), shard=shard, level=1, tenant="acme", datasets=[("acme", "web")])
    datasets = tuple(replace(dataset, min_time_ms=low_ms, max_time_ms=high_ms) for dataset in meta.datasets)
    meta = replace(meta, datasets=datasets, min_time_ms=low_ms, max_time_ms=high_ms)
    assert service.add(meta).accepted
    return meta.id


def six_oclock(service: Service) -> int:
    """Return the start of a partition of yesterday."""
    return service.clock.now_ms // DAY_MS * DAY_MS - DAY_MS + 6 * HOUR_MS


@pytest.mark.row("I2")
def test_bounds_grow_with_what_is_added_and_survive_a_restart(service: Service) -> None:
    start = six_oclock(service)
    add_spanning(service, start + HOUR_MS + 1, start + HOUR_MS, start + 3 * HOUR_MS)
    add_spanning(Service(service.clock), start + 2 * HOUR_MS + 1, start + HOUR_MS // 2, start + 4 * HOUR_MS)
    found = tenant_statistics("acme")
    assert (found.oldest_ms, found.newest_ms) == (start + HOUR_MS // 2, start + 4 * HOUR_MS)
    assert set(Block.objects.values_list("partition_start_ms", flat=True)) == {start}


@pytest.mark.row("I4")
def test_a_range_finds_the_shards_with_data_in_it(service: Service) -> None:
    start = six_oclock(service)
    add_spanning(service, start, start + 4 * HOUR_MS, start + 5 * HOUR_MS, shard=1)
    add_spanning(service, start, start + 6 * HOUR_MS, start + 7 * HOUR_MS, shard=2)

    def shards(low: int, high: int) -> set[int]:
        asked = query("acme", start=start + low * HOUR_MS + 1, end=start + high * HOUR_MS - 1)
        return {block.shard for block in find_blocks(asked)}

    assert (shards(4, 5), shards(6, 7), shards(9, 10)) == ({1}, {2}, set())


@pytest.mark.row("I5")
def test_when_one_shard_is_removed_the_other_stays(service: Service) -> None:
    keep(1)
    gone = old_block(service, 48, 1, shard=1)
    kept = old_block(service, 2, 2, shard=2)
    assert apply_retention(context=CONTEXT).dropped_blocks == 1
    assert (live(), Block.objects.get(ulid=gone).state) == ({kept}, "dropped")
    check_invariants()


@pytest.mark.row("I6")
def test_retention_without_data_succeeds_and_changes_nothing(service: Service) -> None:
    keep(1)
    assert apply_retention(context=CONTEXT).dropped_blocks == 0
    before = service.dump()
    report = apply_retention(context=CONTEXT)
    assert (report.dropped_blocks, service.dump()) == (0, before)


@pytest.mark.row("I7")
def test_of_two_tenants_in_a_shard_one_is_removed_and_the_other_stays(service: Service) -> None:
    keep(1, "acme")
    old_block(service, 48, 1, tenant="acme")
    kept = old_block(service, 48, 2, tenant="beta")
    apply_retention(context=CONTEXT)
    assert live() == {kept}
    assert {found.tenant for found in find_blocks(query("acme", "beta"))} == {"beta"}


@pytest.mark.row("I8")
def test_a_tenant_without_shards_is_not_in_answers(service: Service) -> None:
    keep(1, "acme")
    for shard in (1, 2):
        old_block(service, 48, shard, shard=shard)
    old_block(service, 48, 9, tenant="beta")
    apply_retention(context=CONTEXT)
    assert not tenant_statistics("acme").has_data
    assert find_blocks(query("acme")) == []
    assert tenant_statistics("beta").has_data
    assert not Dataset.objects.filter(tenant__name="acme", block__in=Block.objects.live()).exists()
