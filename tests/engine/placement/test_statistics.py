"""Usage from segment metadata (sheet, section 7; rows L27 to L29, L32; property 15)."""

from __future__ import annotations

import random

import pytest

from engine.formats.profile_block.model import DATASET_INDEX, BlockMeta, DatasetMeta
from engine.placement.documents import decode_statistics, encode_statistics
from engine.placement.rate import RateEstimator
from engine.placement.statistics import (
    CostModel,
    PlacementStatistics,
    Sample,
    ShardUsage,
    UsageAccumulator,
    population_deviation,
    segment_samples,
)


def sample(shard: int, usage: float, *, tenant: str = "a", dataset: str = "checkout", owner: str = "w1") -> Sample:
    return Sample(tenant=tenant, dataset=dataset, shard=shard, owner=owner, usage=usage)


def usages(statistics: PlacementStatistics) -> list[tuple[int, int]]:
    return [(shard.shard, shard.usage) for found in statistics.datasets for shard in found.shards]


def dataset(name: str, size: int, *, tenant: str = "a", form: int = 0) -> DatasetMeta:
    return DatasetMeta(
        tenant=tenant,
        name=name,
        min_time_ms=0,
        max_time_ms=0,
        table_of_contents=(0, 1, 2),
        size=size,
        labels=((("service_name", name),),),
        format=form,
    )


def test_the_rate_vectors_hold() -> None:
    estimator = RateEstimator(10, 0.0)
    expected = {10.0: 50.0, 20.0: 75.0, 50.0: 96.875}
    for step in range(501):
        now = step / 10
        if now in expected:
            assert estimator.value(now) == pytest.approx(expected[now], rel=0.02)
        estimator.add(10, now)


def test_an_amount_from_the_past_is_ignored_and_looking_changes_nothing() -> None:
    estimator = RateEstimator(10, 100.0)
    estimator.add(50, 99.0)
    estimator.add(50, 100.5)
    assert estimator.value(100.5) == 0
    assert estimator.value(110) == estimator.value(110) == pytest.approx(5 * (1 - 2**-1))


def test_samples_come_from_a_segments_metadata() -> None:
    meta = BlockMeta(
        id="01JKT3DJRETWN25NKEFZNEP1V0",
        tenant="",
        shard=7,
        compaction_level=0,
        min_time_ms=0,
        max_time_ms=0,
        datasets=(dataset("checkout", 1_000), dataset("", 70, form=DATASET_INDEX), dataset("checkout", 10, tenant="b")),
        string_table=(),
        created_by="w1",
    )
    assert list(segment_samples(meta)) == [sample(7, 1_000), sample(7, 10, tenant="b")]
    costs = [one.usage for one in segment_samples(meta, CostModel(dataset_bytes=100, label_set_bytes=5))]
    assert costs == [1_105, 115]  # weakness 17.8: not bytes alone


@pytest.mark.row("L27")
def test_statistics_of_tenants_with_the_same_dataset_name_are_separate() -> None:
    usage = UsageAccumulator(half_life_s=10)
    usage.add(sample(1, 100), 0)
    usage.add(sample(1, 900, tenant="b"), 0)
    found = usage.build(10, 10_000)
    assert [(one.tenant, one.dataset, one.usage()) for one in found.datasets] == [
        ("a", "checkout", 5),
        ("b", "checkout", 45),
    ]


@pytest.mark.row("L28", "placement-property-15")
def test_usage_that_moves_to_another_shard_adds_up() -> None:
    """A dataset that writes 10 a second moves from shard 1 to shard 2 at second 100."""
    usage = UsageAccumulator(half_life_s=10)
    for second in range(200):
        usage.add(sample(1 if second < 100 else 2, 10), second)
        both = usage.build(second, second * 1_000).datasets[0].usage()
        if second > 80:
            assert both == pytest.approx(10, abs=2)
        if second == 110:
            assert usages(usage.build(second, 0)) == [(1, 5), (2, 5)]
    assert usages(usage.build(200, 0)) == [(1, 0), (2, 10)]


@pytest.mark.row("L28")
def test_usages_10_and_40_seconds_after_a_move_are_those_of_the_reference() -> None:
    """Shard 1 was seen for one and a bit half-lives before the move, so it is remembered with 3 of 10."""
    usage = UsageAccumulator(half_life_s=10)
    seen = {}
    for second in range(65):
        usage.add(sample(1 if second < 14 else 2, 10), second)
        seen[second] = dict(usages(usage.build(second, 0)))
    assert (seen[24][1], seen[24][2]) == (3, 5)
    assert (seen[64][1], seen[64][2]) == (0, 10)


@pytest.mark.row("L29")
def test_a_stale_counter_is_dropped() -> None:
    usage = UsageAccumulator(half_life_s=10, retention_s=60)
    usage.add(sample(1, 100), 0)
    usage.add(sample(2, 100), 50)
    usage.build(55, 0)
    usage.expire(60)
    assert [shard for shard, _ in usages(usage.build(60, 0))] == [2]
    usage.expire(110)
    assert usage.build(110, 0).datasets == ()
    assert usage.deviations == {}


@pytest.mark.row("L32")
@pytest.mark.parametrize("tick", [1, 5, 15, 30])
def test_the_standard_deviation_does_not_depend_on_the_interval(tick: int) -> None:
    """Weakness 17.1: the origin's is divided by the interval, 0.091 of the mean instead of 1.367 at 15 s."""
    usage = UsageAccumulator(half_life_s=30)
    rates = {1: 4_000, 2: 250, 3: 250, 4: 250}
    for second in range(601):
        for shard, rate in rates.items():
            usage.add(sample(shard, rate), second)
        if second % tick == 0:
            statistics = usage.build(second, 0)
    found = statistics.datasets[0]
    assert found.deviation == pytest.approx(population_deviation(list(rates.values())), rel=0.01)
    assert found.deviation / (found.usage() / 4) == pytest.approx(1.367, rel=0.01)


def test_a_deviation_is_known_at_the_first_look() -> None:
    usage = UsageAccumulator(half_life_s=10)
    usage.add(sample(1, 1_000), 0)
    usage.add(sample(2, 3_000), 0)
    assert usage.build(10, 0).datasets[0].deviation == pytest.approx(50)


def test_the_order_of_arrival_does_not_matter() -> None:
    one, other = UsageAccumulator(), UsageAccumulator()
    arrivals = [sample(s, 100 * s, dataset=d, owner=o) for s in range(5) for d in "xyz" for o in ("w2", "w1")]
    shuffled = list(arrivals)
    random.Random(9).shuffle(shuffled)
    for first, second in zip(arrivals, shuffled, strict=True):
        one.add(first, 5)
        other.add(second, 5)
    assert one.build(20, 7) == other.build(20, 7)
    assert decode_statistics(encode_statistics(one.build(20, 7))) == one.build(20, 7)


def test_a_shard_served_by_two_owners_appears_twice() -> None:
    usage = UsageAccumulator(half_life_s=10)
    usage.add(sample(1, 100, owner="w2"), 0)
    usage.add(sample(1, 100, owner="w1"), 0)
    (found,) = usage.build(10, 0).datasets
    assert found.shards == (ShardUsage(shard=1, owner="w1", usage=5), ShardUsage(shard=1, owner="w2", usage=5))


def test_counters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.placement.statistics.COUNTERS_MAX", 3)
    usage = UsageAccumulator()
    for number in range(10):
        usage.add(sample(1, 1, dataset=f"d{number}"), 0)
    assert len(usage.counters) == 3
