"""Fair shares: weights, caps, newcomers, and that nothing but the input decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedule.fairness import Candidate, FairShare, LaneView, TenantView

MIB = 1 << 20
LANE = "profiles"


def work(tenant: str, count: int, *, lane: str = LANE, size: int = MIB, running: bool = False) -> list[Candidate[str]]:
    return [
        Candidate(
            lane=lane,
            tenant=tenant,
            priority_ms=n,
            name=f"{lane}-{tenant}-{n:04}",
            size_bytes=size,
            work=tenant,
            is_running=running,
        )
        for n in range(count)
    ]


def serve(
    candidates: list[Candidate[str]], count: int, *, tenants: list[TenantView] = (), lanes: list[LaneView] = ()
) -> tuple[list[str], tuple]:
    share = FairShare(lanes, tenants, candidates)
    served = []
    for candidate in share:
        if len(served) == count:
            break
        share.charge(candidate)
        served.append(candidate.name)
    return served, share.charges()


def by_tenant(served: list[str]) -> Counter[str]:
    return Counter(name.split("-")[1] for name in served)


def test_tenants_of_equal_weight_are_served_equally() -> None:
    served, _ = serve(work("a", 9) + work("b", 9) + work("c", 9), 6)
    assert by_tenant(served) == {"a": 2, "b": 2, "c": 2}


def test_weights_are_shares() -> None:
    tenants = [TenantView(lane=LANE, tenant="a", weight=3)]
    served, _ = serve(work("a", 99) + work("b", 99), 40, tenants=tenants)
    assert by_tenant(served) == {"a": 30, "b": 10}


def test_large_jobs_cost_more_than_small_ones_and_tiny_ones_are_not_free() -> None:
    served, _ = serve(work("large", 99, size=4 * MIB) + work("small", 99) + work("tiny", 99, size=1), 45)
    assert by_tenant(served) == {"large": 5, "small": 20, "tiny": 20}


def test_shares_hold_over_many_polls_of_one_slot() -> None:
    tenants = {name: TenantView(lane=LANE, tenant=name, weight=weight) for name, weight in [("a", 1), ("b", 2)]}
    lane, counts = LaneView(lane=LANE), Counter()
    for _ in range(30):
        served, (charges, lanes) = serve(work("a", 1) + work("b", 1), 1, tenants=[*tenants.values()], lanes=[lane])
        counts += by_tenant(served)
        for charge in charges:
            tenants[charge.tenant] = replace(tenants[charge.tenant], virtual_time=charge.virtual_time)
        lane = replace(lane, tenant_time=lanes[0].tenant_time, started_time=lanes[0].started_time)
    assert counts == {"a": 10, "b": 20}


def test_idleness_earns_no_credit() -> None:
    """``idle`` has had nothing for long; it gets its share from now on, not what it did not ask for."""
    tenants = [TenantView(lane=LANE, tenant="busy", virtual_time=10**9), TenantView(lane=LANE, tenant="idle")]
    served, _ = serve(
        work("busy", 99) + work("idle", 99), 20, tenants=tenants, lanes=[LaneView(lane=LANE, tenant_time=10**9)]
    )
    assert by_tenant(served) == {"busy": 10, "idle": 10}


def test_a_newcomer_comes_next_however_long_the_backlog() -> None:
    tenants = [TenantView(lane=LANE, tenant="busy", virtual_time=10**9 + 1)]
    served, _ = serve(
        work("busy", 999) + work("new", 1), 1, tenants=tenants, lanes=[LaneView(lane=LANE, tenant_time=10**9)]
    )
    assert by_tenant(served) == {"new": 1}


def test_a_tenant_at_its_cap_is_passed_over_but_keeps_what_it_runs() -> None:
    tenants = [TenantView(lane=LANE, tenant="a", running_count=1, running_max=2)]
    served, _ = serve(work("a", 9) + work("b", 3), 9, tenants=tenants)
    assert by_tenant(served) == {"a": 1, "b": 3}
    full = [TenantView(lane=LANE, tenant="a", running_count=2, running_max=2)]
    assert by_tenant(serve(work("a", 2, running=True), 9, tenants=full)[0]) == {"a": 2}


def test_a_cost_cap_lets_smaller_jobs_pass_and_one_large_job_run_alone() -> None:
    tenants = [TenantView(lane=LANE, tenant="a", running_bytes=MIB, running_bytes_max=3 * MIB, running_count=1)]
    candidates = work("a", 1, size=3 * MIB) + [replace(c, priority_ms=9, name="p-a-x") for c in work("a", 1)]
    assert serve(candidates, 9, tenants=tenants)[0] == ["p-a-x"]
    alone = [replace(tenants[0], running_bytes=0, running_count=0)]
    assert serve(work("a", 2, size=9 * MIB), 9, tenants=alone)[0] == [f"{LANE}-a-0000"]


def test_lanes_share_by_weight_and_obey_their_caps() -> None:
    candidates = work("a", 99, lane="profiles") + work("a", 99, lane="tsdb")
    lanes = [LaneView(lane="profiles", weight=3), LaneView(lane="tsdb")]
    served, _ = serve(candidates, 20, lanes=lanes)
    assert Counter(name.split("-")[0] for name in served) == {"profiles": 15, "tsdb": 5}
    capped = [replace(lanes[0], running_count=7, running_max=9), lanes[1]]
    served, _ = serve(candidates, 20, lanes=capped)
    assert Counter(name.split("-")[0] for name in served) == {"profiles": 2, "tsdb": 18}


def test_what_was_declined_is_not_paid_for() -> None:
    share = FairShare([], [], work("a", 3))
    assert len(list(share)) == 3
    assert share.charges() == ((), ())


tenant_lists = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50), st.integers(0, 10**6)), min_size=1, max_size=6)


@pytest.mark.slow
@given(tenant_lists, st.integers(0, 60), st.randoms())
def test_capacity_is_used_fully_and_input_order_has_no_effect(
    rows: list[tuple[int, int, int]], capacity: int, random
) -> None:
    tenants = [
        TenantView(lane=LANE, tenant=f"t{n}", weight=weight, virtual_time=time)
        for n, (weight, _, time) in enumerate(rows)
    ]
    candidates = [one for n, (_, count, _) in enumerate(rows) for one in work(f"t{n}", count)]
    served, charges = serve(candidates, capacity, tenants=tenants)
    assert len(served) == min(capacity, len(candidates))
    assert len(set(served)) == len(served)
    shuffled = random.sample(candidates, len(candidates))
    assert serve(shuffled, capacity, tenants=random.sample(tenants, len(tenants))) == (served, charges)


@given(st.lists(st.integers(1, 20), min_size=2, max_size=5), st.integers(20, 200))
@pytest.mark.parametrize("size", [1, 5 * MIB])
def test_each_backlogged_tenant_gets_its_share_but_for_a_round(size: int, weights: list[int], count: int) -> None:
    tenants = [TenantView(lane=LANE, tenant=f"t{n}", weight=weight) for n, weight in enumerate(weights)]
    candidates = [one for n in range(len(weights)) for one in work(f"t{n}", count, size=size)]
    served, _ = serve(candidates, count, tenants=tenants)
    for n, weight in enumerate(weights):
        assert by_tenant(served)[f"t{n}"] >= int(count * weight / sum(weights)) - len(weights)
