"""Properties of the reference queue that no single scenario shows; its scenarios are in ``tests/scenarios``."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lanes.profiles.plan.model import LevelPolicy, QueuedBlock
from tests.reference_policy.block_queue import ReferenceQueue
from tests.reference_policy.plan import ReferencePlan

POLICIES = {level: LevelPolicy(blocks_max=3, age_ms=20, spread_ms=50) for level in range(3)}
Arrival = tuple[int, int, int]


def filled(arrivals: list[Arrival]) -> tuple[ReferenceQueue, list[tuple[tuple[str, str, int, int], str]]]:
    queue, rows, now = ReferenceQueue(POLICIES), [], 0
    for number, (shard, level, passed) in enumerate(arrivals):
        now += passed
        key = ("profiles", "A", shard, level)
        queue.push(key, QueuedBlock(id=number, ulid=str(number), arrived_at_ms=now, created_at_ms=now, size_bytes=1))
        if number < 50 or number % 250 == 0:
            queue.check()
        rows.append((key, str(number)))
    return queue, rows


def planned(queue: ReferenceQueue, now_ms: int) -> list[tuple[str, ...]]:
    plan, jobs = ReferencePlan(queue, policies=POLICIES, now_ms=now_ms), []
    while (job := plan.next_job()) is not None:
        jobs.append(tuple(block.ulid for block in job.blocks))
    return jobs


@pytest.mark.row("Q12")
def test_queues_of_many_keys_can_be_emptied_in_any_order() -> None:
    queue, rows = filled([(shard, 0, 1) for _ in range(100) for shard in range(50)])
    random.Random(12).shuffle(rows)
    for position, (key, ulid) in enumerate(rows):
        assert queue.delete(key, ulid)
        if position % 250 == 0:
            queue.check()
    queue.check()
    assert list(queue.queue_keys()) == []
    assert queue.batches(0) == ()


arrivals = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 30)), max_size=40)


@given(arrivals, st.integers(0, 2000), st.data())
def test_plans_share_no_block_keep_the_policy_and_change_nothing(rows: list[Arrival], now: int, data) -> None:
    queue, pushed = filled(rows)
    for key, ulid in data.draw(st.lists(st.sampled_from(pushed), unique=True)) if pushed else []:
        queue.delete(key, ulid)
        queue.check()
    first = planned(queue, now)
    queue.check()
    assert planned(queue, now) == first
    taken = [ulid for job in first for ulid in job]
    assert len(taken) == len(set(taken))
    assert all(1 <= len(job) <= 3 for job in first)
    kept = {ulid: block for key, ulid in pushed for block in [_find(queue, key, ulid)] if block}
    for job in first:
        created = [kept[ulid].created_at_ms for ulid in job]
        assert max(created) - min(created) <= 50


def _find(queue: ReferenceQueue, key, ulid: str) -> QueuedBlock | None:
    blocks = [block for batch in queue.batches_of(key) for block in batch.blocks()]
    return next((block for block in blocks if block.ulid == ulid), None)
