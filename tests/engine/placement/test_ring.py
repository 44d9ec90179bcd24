"""The ring through changes of membership, and what a change would move (weaknesses 17.3, 17.10 and 17.15)."""

from __future__ import annotations

import pytest

from engine.placement.errors import RingRefused
from engine.placement.model import DatasetRule, Instance, LoadBalancing, PlacementRules, TenantLimits
from engine.placement.ring import EMPTY_RING, change_ring
from engine.placement.what_if import PlacedSeries, compare_placements

SERIES = [PlacedSeries(tenant=f"t{n % 20}", dataset=f"s{n}", fingerprint=n * 7919) for n in range(2_000)]


def writers(*numbers: int, **fields: str) -> list[Instance]:
    return [Instance(id=f"w{number}", **fields) for number in numbers]  # type: ignore[arg-type]


def test_nothing_changes_without_a_reason() -> None:
    ring = change_ring(EMPTY_RING, writers(*range(5)))
    assert change_ring(ring, reversed(writers(*range(5)))) is ring
    assert change_ring(EMPTY_RING, []) is EMPTY_RING


def test_a_version_grows_with_every_change_and_the_shards_outlive_the_instances() -> None:
    ring = change_ring(EMPTY_RING, writers(1, 2))
    empty = change_ring(ring, [])
    assert (empty.version, empty.shards, empty.tables) == (2, 16, {})
    again = change_ring(empty, writers(1))
    assert (again.version, again.shards) == (3, 16)
    again.check()


def test_each_zone_has_a_table_of_its_own_over_the_same_shards() -> None:
    ring = change_ring(EMPTY_RING, [*writers(1, 2, zone="east"), *writers(3, zone="west"), *writers(4)])
    assert ring.zones() == ["east", "west"]
    assert {zone: len(set(owners)) for zone, owners in ring.tables.items()} == {"": 4, "east": 2, "west": 1}
    assert {len(owners) for owners in ring.tables.values()} == {ring.shards}
    ring.check()
    smaller = change_ring(ring, writers(1, 2, zone="east"))
    assert smaller.zones() == ["east"]
    assert smaller.tables["east"] == ring.tables["east"]


@pytest.mark.parametrize("shards", [0, -1, 1 << 17])
def test_a_number_of_shards_that_no_ring_has_is_refused(shards: int) -> None:
    with pytest.raises(RingRefused):
        change_ring(EMPTY_RING, writers(1), shards=shards)


def test_an_instance_twice_is_refused() -> None:
    with pytest.raises(RingRefused, match="'w1' is listed twice"):
        change_ring(EMPTY_RING, writers(1, 1))


@pytest.mark.parametrize("gone", range(12))
def test_when_an_instance_leaves_only_what_it_wrote_moves_and_no_shard_changes(gone: int) -> None:
    before = change_ring(EMPTY_RING, writers(*range(12)))
    after = change_ring(before, writers(*(number for number in range(12) if number != gone)))
    found = compare_placements(before, after, PlacementRules(), SERIES, new_rules=PlacementRules())
    assert found.moved == pytest.approx(found.unavoidable)
    assert 0.05 < found.moved < 0.13
    assert found.moved_shards == 0


def test_what_a_limit_would_move_is_known_before_it_is_set() -> None:
    ring = change_ring(EMPTY_RING, writers(*range(12)))
    wide = PlacementRules(
        datasets={
            (one.tenant, one.dataset): DatasetRule(
                tenant_shards=0, dataset_shards=2, load_balancing=LoadBalancing.ROUND_ROBIN
            )
            for one in SERIES
        },
        default_limits=TenantLimits(load_balancing=LoadBalancing.ROUND_ROBIN),
    )
    found = compare_placements(ring, ring, PlacementRules(), SERIES, new_rules=wide)
    assert 0.4 < found.moved_shards < 0.6
    assert found.unavoidable == 0
    assert sum(found.by_instance.values()) == pytest.approx(len(SERIES))


def test_a_ring_that_must_grow_moves_most_once_and_then_nothing_for_long() -> None:
    """What it costs that shards do not follow every change of membership: see decision 0020."""
    before = change_ring(EMPTY_RING, writers(*range(10)))
    fits = change_ring(before, writers(*range(20)))
    assert (before.shards, fits.shards) == (80, 80)
    assert compare_placements(before, fits, PlacementRules(), SERIES, new_rules=PlacementRules()).moved_shards == 0
    grown = change_ring(fits, writers(*range(21)))
    assert grown.shards == 168
    assert (
        0.5 < compare_placements(fits, grown, PlacementRules(), SERIES, new_rules=PlacementRules()).moved_shards < 0.9
    )
    assert change_ring(grown, writers(*range(42))).shards == 168
