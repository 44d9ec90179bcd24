"""Who may take which interval: shards and owners move little, parts spread, and no job waits longer than a lease."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.lanes.tsdb.plan.model import group_id
from engine.lanes.tsdb.plan.ownership import IntervalJob, Ownership, WorkerRing, shard_seed, shard_size
from engine.schedule.errors import PolicyRefused

LEASE_MS = 60_000
NAMES = [f"node-{number}" for number in range(12)]
HOURS = 3_600_000


def job(tenant: str = "A", hour: int = 0, *, partition: int = 0, waited_ms: int = 0) -> IntervalJob:
    start_ms = hour * HOURS
    return IntervalJob(
        tenant=tenant, start_ms=start_ms, end_ms=start_ms + 2 * HOURS, partition=partition, waited_ms=waited_ms
    )


def ownership(workers: list[str], size: float = 3) -> Ownership:
    return Ownership(ring=WorkerRing.of(workers), lease_ms=LEASE_MS, size=size)


def test_a_shard_has_the_requested_size() -> None:
    assert [shard_size(size, 10) for size in (0, 1, 3, 10, 99, 0.05, 0.5, 0.51, 2.5)] == [10, 1, 3, 10, 10, 1, 5, 6, 3]
    for size in (-1, float("nan"), float("inf")):
        with pytest.raises(PolicyRefused):
            shard_size(size, 10)
    ring = WorkerRing.of(NAMES)
    assert len(ring.shard("A", 3).workers) == 3
    assert ring.shard("A", 0) is ring


def test_the_seed_is_the_tenants_and_the_zones() -> None:
    assert shard_seed("A") == int.from_bytes(hashlib.md5(b"A").digest()[:8], "big")
    assert shard_seed("A", "z1") == int.from_bytes(hashlib.md5(b"A\0z1").digest()[:8], "big")


def test_everybody_computes_the_same_whatever_the_order_of_names() -> None:
    one, other = ownership(NAMES), ownership(NAMES[::-1])
    assert one.shard("A") == other.shard("A")
    assert [one.owner(job(hour=hour)) for hour in range(50)] == [other.owner(job(hour=hour)) for hour in range(50)]


def test_owners_known_once_stay_known() -> None:
    """Processes of two releases agree: tokens come from nothing that a library may change."""
    whole = ownership(NAMES, 0)
    assert [whole.owner(job(hour=hour)) for hour in range(0, 8, 2)] == ["node-1", "node-6", "node-8", "node-4"]
    assert sorted(ownership(NAMES).shard("A").workers) == ["node-4", "node-5", "node-7"]


def test_intervals_of_a_tenant_are_spread_over_its_shard_and_tenants_over_the_ring() -> None:
    fleet = ownership(NAMES)
    owners = Counter(fleet.owner(job(hour=2 * number)) for number in range(600))
    assert set(owners) == set(fleet.shard("A").workers)
    assert min(owners.values()) > 100
    members = Counter(worker for number in range(1000) for worker in fleet.shard(f"tenant-{number}").workers)
    assert set(members) == set(NAMES)
    assert max(members.values()) < 2 * min(members.values())


def test_parts_of_one_interval_belong_to_different_workers_of_the_shard() -> None:
    fleet = ownership(NAMES)
    first = [fleet.owner(job(partition=number)) for number in range(3)]
    assert set(first) == set(fleet.shard("A").workers)
    assert fleet.owner(job(partition=3)) == first[0]
    assert first == fleet.shard("A").following(group_id("A", 0, 2 * HOURS))


def test_the_owner_comes_first_then_the_shard_then_anyone() -> None:
    fleet = ownership(NAMES)
    owner = fleet.owner(job())
    assert owner is not None
    member = next(name for name in sorted(fleet.shard("A").workers) if name != owner)
    stranger = next(name for name in NAMES if name not in fleet.shard("A").workers)

    def able(waited_ms: int) -> list[bool]:
        return [bool(fleet.may_take(name, job(waited_ms=waited_ms))) for name in (owner, member, stranger)]

    assert able(0) == [True, False, False]
    assert able(LEASE_MS // 10 - 1) == [True, False, False]
    assert able(LEASE_MS // 10) == [True, True, False]
    assert able(LEASE_MS - 1) == [True, True, False]
    assert able(LEASE_MS) == [True, True, True]
    assert fleet.may_take(stranger, job()).reason == (
        f"{stranger} is not in the tenant's shard; any worker may take the job after a whole lease"
    )
    assert fleet.may_take(member, job()).after_ms == LEASE_MS // 10
    assert owner in fleet.may_take(member, job()).reason


def test_without_workers_jobs_have_no_owner_and_new_workers_wait_a_lease() -> None:
    empty = ownership([])
    assert empty.owner(job()) is None
    assert not empty.may_take("new", job())
    assert empty.may_take("new", job(waited_ms=LEASE_MS))


def test_a_tenant_may_have_a_shard_of_its_own_size() -> None:
    fleet = Ownership(ring=WorkerRing.of(NAMES), lease_ms=LEASE_MS, size=2, sizes={"large": 0.5})
    assert [len(fleet.shard(tenant).workers) for tenant in ("small", "large")] == [2, 6]


fleets = st.sets(st.sampled_from(NAMES), min_size=1)


@settings(deadline=None)
@given(fleets, st.sampled_from(NAMES), st.integers(1, 5), st.text(max_size=5))
def test_a_join_or_leave_changes_a_shard_by_one_and_moves_only_what_it_owns(
    names: set[str], changed: str, size: int, tenant: str
) -> None:
    before, after = WorkerRing.of(names - {changed}), WorkerRing.of(names | {changed})
    small, large = before.shard(tenant, size).workers, after.shard(tenant, size).workers
    if len(before.workers) >= size:
        assert len(small - large) <= 1
        assert large - small <= {changed}
    else:
        assert large == small | {changed}
    for hour in range(0, 40, 2):
        digest = group_id(tenant, hour, hour + 2)
        if before.workers and after.following(digest)[0] != before.following(digest)[0]:
            assert after.following(digest)[0] == changed


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3 * LEASE_MS)), max_size=12),
    st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, 20), st.integers(0, 2 * LEASE_MS)), max_size=25),
    st.integers(1, 3),
)
def test_no_job_waits_longer_than_a_lease_though_workers_come_and_go_with_slow_jobs(
    changes: list[tuple[str, int]], jobs: list[tuple[str, int, int]], size: int
) -> None:
    """Every worker but one has room for a single job, which never ends; that one stays, the others come and go."""
    poll_ms = LEASE_MS // 20
    present, full = {"always"}, set()
    waiting, taken_after = dict(enumerate(jobs)), {}
    for now_ms in range(0, 4 * LEASE_MS, poll_ms):
        for name, at_ms in changes:
            if now_ms - poll_ms < at_ms <= now_ms:
                present ^= {name}
        fleet = ownership(sorted(present), size)
        for worker in sorted(present - full, reverse=True):
            for number, (tenant, hour, arrived_ms) in sorted(waiting.items()):
                waited_ms = now_ms - arrived_ms
                may = waited_ms >= 0 and fleet.may_take(worker, job(tenant, hour, waited_ms=waited_ms))
                if may and worker not in full:
                    taken_after[number] = waited_ms
                    del waiting[number]
                    full |= {worker} - {"always"}
    assert not waiting
    assert max(taken_after.values(), default=0) < LEASE_MS + poll_ms
