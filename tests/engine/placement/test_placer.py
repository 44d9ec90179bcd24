"""A distributor's decisions: one suite for both placers (rows L1 to L6, L15, L16, L36; properties 9, 12, 13)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.placement import _placer, _placer_py, placer
from engine.placement.errors import EmptyRing, NoInstance, RingRefused
from engine.placement.jump_hash import jump_hash
from engine.placement.model import DatasetRule, Instance, InstanceState, LoadBalancing, PlacementRules, TenantLimits
from engine.placement.ring import EMPTY_RING, Ring, change_ring
from engine.placement.subrings import dataset_subring, fallback_order, key_hash

TWINS = [_placer_py, _placer]
FINGERPRINT = 0xFEEDFACECAFEBEEF
NO_RULES = PlacementRules()


@pytest.fixture(params=TWINS, ids=["twin", "compiled"])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def instances(count: int, **fields: Any) -> list[Instance]:
    return [Instance(id=f"writer-{number}", **fields) for number in range(count)]


def ring_of(*members: Instance, shards: int | None = None) -> Ring:
    return change_ring(EMPTY_RING, members, shards=shards)


def rules_for(shards: int, tenant_shards: int = 0, choice: LoadBalancing = LoadBalancing.FINGERPRINT) -> PlacementRules:
    rule = DatasetRule(tenant_shards=tenant_shards, dataset_shards=shards, load_balancing=choice)
    return PlacementRules(datasets={("tenant-a", "checkout"): rule})


def names(decision: placer.Decision) -> list[str]:
    return [candidate.instance for candidate in decision.candidates()]


@pytest.mark.row("L1")
def test_without_instances_the_ring_is_empty(twin: ModuleType) -> None:
    with pytest.raises(EmptyRing, match="start a segment writer"):
        twin.Placer(EMPTY_RING, NO_RULES).decide("tenant-a", "checkout", 1)


@pytest.mark.row("L2")
@pytest.mark.parametrize("limits", [(0, 0), (1, 1), (1024, 512), (1024, 2048)])
def test_every_instance_is_offered_whatever_the_limits(twin: ModuleType, limits: tuple[int, int]) -> None:
    ring = ring_of(*instances(3, tokens=1), shards=3)
    decision = twin.Placer(ring, rules_for(limits[1], limits[0])).decide("tenant-a", "checkout", FINGERPRINT)
    assert sorted(names(decision)) == ["writer-0", "writer-1", "writer-2"]


@pytest.mark.row("L3")
def test_a_ring_of_one_instance_offers_it_once(twin: ModuleType) -> None:
    ring = change_ring(ring_of(*instances(3)), instances(1))
    decision = twin.Placer(ring, NO_RULES).decide("tenant-a", "checkout", FINGERPRINT)
    assert names(decision) == [decision.instance] == ["writer-0"]


@pytest.mark.row("L4")
def test_the_same_key_has_the_same_candidate_order(twin: ModuleType) -> None:
    one = twin.Placer(ring_of(*instances(5)), rules_for(4, 8)).decide("tenant-a", "checkout", FINGERPRINT)
    other = twin.Placer(ring_of(*instances(5)), rules_for(4, 8)).decide("tenant-a", "checkout", FINGERPRINT)
    assert list(one.order()) == list(one.order()) == list(other.order())


@pytest.mark.row("L5")
def test_other_picks_of_a_dataset_rotate_its_shards_and_share_the_rest(twin: ModuleType) -> None:
    placed = twin.Placer(ring_of(*instances(3), shards=12), rules_for(4, 8))
    orders = [list(placed.decide("tenant-a", "checkout", pick).order()) for pick in range(4)]
    for pick, order in enumerate(orders):
        assert order[:4] == orders[0][pick:4] + orders[0][:pick]
        assert order[4:] == orders[0][4:]


@pytest.mark.row("L6")
def test_the_order_ends_after_every_shard(twin: ModuleType) -> None:
    decision = twin.Placer(ring_of(*instances(3)), rules_for(2, 3)).decide("tenant-a", "checkout", FINGERPRINT)
    assert sorted(decision.order()) == list(range(24))


@pytest.mark.row("L15")
def test_only_active_instances_are_offered_once_each_and_in_order(twin: ModuleType) -> None:
    members = instances(5)
    members[1] = replace(members[1], state=InstanceState.LEAVING)
    members[3] = replace(members[3], state=InstanceState.PENDING)
    ring = ring_of(*members)
    found = names(twin.Placer(ring, rules_for(3, 5)).decide("tenant-a", "checkout", FINGERPRINT))
    all_active = names(twin.Placer(ring_of(*instances(5)), rules_for(3, 5)).decide("tenant-a", "checkout", FINGERPRINT))
    assert found == [name for name in all_active if name not in ("writer-1", "writer-3")]
    assert ring.tables == ring_of(*instances(5)).tables  # a pause of one instance moves nothing


@pytest.mark.row("L16")
def test_a_rule_applies_to_its_dataset_only(twin: ModuleType) -> None:
    placed = twin.Placer(ring_of(*instances(3)), rules_for(4, 4, LoadBalancing.ROUND_ROBIN))

    def shards(tenant: str, dataset: str) -> int:
        return len({placed.decide(tenant, dataset, FINGERPRINT).shard for _ in range(60)})

    assert (shards("tenant-a", "checkout"), shards("tenant-a", "other"), shards("tenant-b", "checkout")) == (4, 1, 1)


@pytest.mark.row("L36")
def test_the_home_zone_is_tried_first_and_others_only_if_allowed(twin: ModuleType) -> None:
    members = [Instance(id=f"{zone}-{number}", zone=zone) for zone in ("east", "west") for number in range(3)]
    may, may_not = NO_RULES, PlacementRules(default_limits=TenantLimits(may_leave_zone=False))
    ring = ring_of(*members)
    for number in range(50):
        free = names(twin.Placer(ring, may, "east").decide("tenant-a", f"service-{number}", number))
        bound = names(twin.Placer(ring, may_not, "east").decide("tenant-a", f"service-{number}", number))
        assert free[:3] == bound
        assert {name[:4] for name in bound} == {"east"}
        assert {name[:4] for name in free[3:]} == {"west"}
        assert len(set(free)) == 6


def test_a_dataset_has_one_shard_in_every_zone_and_evenly_loaded_instances(twin: ModuleType) -> None:
    members = [Instance(id=f"{zone}-{number}", zone=zone) for zone in ("east", "west") for number in range(3)]
    ring = ring_of(*members)
    decisions = [twin.Placer(ring, NO_RULES, zone).decide("tenant-a", "checkout", 3) for zone in ("east", "west", "")]
    assert len({decision.shard for decision in decisions}) == 1
    assert [decision.instance[:4] for decision in decisions[:2]] == ["east", "west"]
    assert set(Counter(ring.tables["east"]).values()) == {ring.shards // 3}


def test_a_zone_without_instances_is_served_by_others_only_if_allowed(twin: ModuleType) -> None:
    ring = ring_of(Instance(id="a", zone="east"))
    assert twin.Placer(ring, NO_RULES, "west").decide("tenant-a", "checkout", 1).instance == "a"
    bound = PlacementRules(tenants={"tenant-a": TenantLimits(may_leave_zone=False)})
    with pytest.raises(NoInstance, match="zone 'west' for tenant 'tenant-a'"):
        twin.Placer(ring, bound, "west").decide("tenant-a", "checkout", 1)
    assert twin.Placer(ring, bound, "west").decide("tenant-b", "checkout", 1).instance == "a"


def test_a_fleet_without_an_active_instance_takes_nothing(twin: ModuleType) -> None:
    ring = ring_of(*instances(2, state=InstanceState.JOINING))
    with pytest.raises(NoInstance, match="the fleet"):
        twin.Placer(ring, NO_RULES).decide("tenant-a", "checkout", 1)


@pytest.mark.row("placement-property-13")
def test_a_fallback_keeps_the_shard_and_reports_its_distance(twin: ModuleType) -> None:
    ring = ring_of(*instances(4))
    before = twin.Placer(ring, rules_for(2)).decide("tenant-a", "checkout", FINGERPRINT)
    failed = [replace(one, state=InstanceState.LEAVING) if one.id == before.instance else one for one in ring.instances]
    after = twin.Placer(replace(ring, instances=tuple(failed)), rules_for(2)).decide(
        "tenant-a", "checkout", FINGERPRINT
    )
    assert after.shard == before.shard
    assert names(before)[1:] == names(after)
    raised = [candidate.dataset_shards for candidate in before.candidates()]
    assert raised[0] == 2
    assert raised == sorted(raised)
    assert raised[-1] > 2


def test_pinned_shards_are_used_and_those_the_ring_lacks_are_passed_over(twin: ModuleType) -> None:
    ring = ring_of(*instances(3), shards=12)

    def shards(*pinned: int) -> list[int]:
        rule = DatasetRule(tenant_shards=2, dataset_shards=1, shards=pinned)
        placed = twin.Placer(ring, PlacementRules(datasets={("tenant-a", "checkout"): rule}))
        decisions = [placed.decide("tenant-a", "checkout", pick) for pick in range(4)]
        assert all(sorted(decision.order()) == list(range(12)) for decision in decisions)
        placed.check()
        return [decision.shard for decision in decisions]

    assert shards(9, 2, 5) == [9, 2, 5, 9]
    assert shards(9, 700, 0, 9) == [9, 9, 9, 9]
    assert shards(700) == shards()


@pytest.mark.row("placement-property-12")
def test_round_robin_is_uniform_and_fingerprints_stay(twin: ModuleType) -> None:
    placed = twin.Placer(ring_of(*instances(4)), rules_for(8, 0, LoadBalancing.ROUND_ROBIN), seed=12)
    counts = Counter(placed.decide("tenant-a", "checkout", FINGERPRINT).shard for _ in range(4_000))
    assert len(counts) == 8
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 14.07  # 7 degrees of freedom, 5 %
    placed = twin.Placer(ring_of(*instances(4)), rules_for(8))
    assert len({placed.decide("tenant-a", "checkout", FINGERPRINT).shard for _ in range(100)}) == 1


@pytest.mark.parametrize(("fingerprint", "picks"), [((1 << 64) - 1, [0, 1, 0, 3, 7]), (4, [0, 0, 1, 0, 4])])
def test_a_fingerprint_is_taken_modulo_as_an_unsigned_number(
    twin: ModuleType, fingerprint: int, picks: list[int]
) -> None:
    for count, pick in zip((1, 2, 3, 4, 8), picks, strict=True):
        subring = dataset_subring(16, key_hash("tenant-a"), key_hash("checkout"), 0, count)
        decision = twin.Placer(ring_of(*instances(4), shards=16), rules_for(count)).decide(
            "tenant-a", "checkout", fingerprint
        )
        assert decision.position == subring.at(pick)
        assert list(decision.order()) == list(fallback_order(subring, pick))


@pytest.mark.parametrize("fingerprint", [-1, 1 << 64])
def test_a_fingerprint_that_is_none_is_refused(twin: ModuleType, fingerprint: int) -> None:
    with pytest.raises(OverflowError):
        twin.Placer(ring_of(*instances(1)), NO_RULES).decide("tenant-a", "checkout", fingerprint)


def test_names_of_any_text_are_placed_and_forgotten_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_placer, "DATASETS_MAX", 10)
    placed = _placer.Placer(ring_of(*instances(2)), NO_RULES)
    for name in ["", "\0", "\ud800", "é" * 5_000, *map(str, range(50))]:
        assert 1 <= placed.decide(name, name, 0).shard <= placed.ring.shards
    placed.check()


def test_a_ring_whose_table_is_torn_is_refused(twin: ModuleType) -> None:
    ring = replace(ring_of(*instances(2)), shards=64)
    with pytest.raises((ValueError, RingRefused)):
        twin.Placer(ring, NO_RULES).check()


@pytest.mark.row("placement-property-9")
@given(st.integers(0, 1 << 32))
def test_twin_and_compiled_decide_alike(seed: int) -> None:
    draw = random.Random(seed)
    zones = ("", "east", "west")[: draw.randint(1, 3)]
    states = [InstanceState.ACTIVE] * 3 + [InstanceState.LEAVING]
    members = [
        Instance(id=f"writer-{number}", zone=draw.choice(zones), tokens=draw.randint(1, 5), state=draw.choice(states))
        for number in range(draw.randint(1, 9))
    ]
    datasets = [(f"tenant-{number % 3}", f"service-{number}") for number in range(8)]
    rules = PlacementRules(
        datasets={
            key: DatasetRule(
                tenant_shards=draw.randint(0, 40),
                dataset_shards=draw.randint(0, 40),
                load_balancing=LoadBalancing(draw.randint(0, 2)),
                shards=tuple(draw.choices(range(60), k=draw.choice([0, 0, 3]))),
            )
            for key in datasets[:6]
        },
        tenants={"tenant-1": TenantLimits(may_leave_zone=False)},
    )
    ring = change_ring(EMPTY_RING, members)
    placers = [module.Placer(ring, rules, zones[-1], seed) for module in TWINS]
    for tenant, dataset in datasets * 2:
        fingerprint = draw.getrandbits(64)
        answers = []
        for placed in placers:
            try:
                decision = placed.decide(tenant, dataset, fingerprint)
            except NoInstance as error:
                answers.append(str(error))
            else:
                fields = (decision.shard, decision.position, decision.instance, decision.dataset_shards)
                answers.append((fields, list(decision.order()), list(decision.candidates())))
        assert answers[0] == answers[1]
    placers[1].check()


def test_the_fallback_example_continues_with_the_next_instance(twin: ModuleType) -> None:
    """Slots 0 to 3 are A's, 4 to 7 B's, 8 to 11 C's; the tenant starts at 3, its dataset one further."""
    slots = (4, 11, 5, 2, 3, 0, 7, 9, 8, 10, 1, 6)
    members = tuple(Instance(id=name) for name in "ABC")
    ring = Ring(shards=12, instances=members, tables={"": tuple("ABC"[slot // 4] for slot in slots)})
    rule = DatasetRule(tenant_shards=8, dataset_shards=4)
    tenant = next(f"tenant-{n}" for n in range(99) if jump_hash(key_hash(f"tenant-{n}"), 12) == 3)
    rules = PlacementRules(datasets={(tenant, "my-service"): rule})
    picks = [twin.Placer(ring, rules).decide(tenant, "my-service", pick) for pick in range(4)]
    assert [decision.instance for decision in picks] == ["A", "A", "B", "C"]
    assert "".join(ring.tables[""][position] for position in picks[2].order()) == "BCAACCAABBCB"
    assert names(picks[2]) == ["B", "C", "A"]
    without = replace(ring, instances=(members[0], replace(members[1], state=InstanceState.LEAVING), members[2]))
    after = twin.Placer(without, rules).decide(tenant, "my-service", 2)
    assert (after.instance, after.shard) == ("C", picks[2].shard)
