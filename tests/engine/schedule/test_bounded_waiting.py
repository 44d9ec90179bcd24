"""No starvation: higher levels and small tenants are served within a number of polls that is known beforehand.

A world of queues that never run dry is polled again and again; what is watched is one job that others could hide.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.lanes.profiles.plan.consolidation import plan_queues
from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, PlannedJob, QueuedBlock
from engine.schedule.fairness import LaneView, TenantView
from engine.schedule.model import ScheduleLimits, ScheduleSnapshot
from engine.schedule.prepare import prepare
from engine.schedule.priority import SIZE_DELAY_MAX_MS, job_priority_ms

LANE = "profiles"
MIB = 1 << 20
POLICY = LevelPolicy(blocks_max=1, age_ms=1, spread_ms=1)
POLL_MS = 60_000
START_MS = 10 * SIZE_DELAY_MAX_MS


@dataclass
class Backlog:
    """A queue with fresh blocks at every poll, or with the one that is watched."""

    tenant: str
    level: int
    size_mib: int
    blocks_per_poll: int = 3
    served_at_ms: int = 0
    watched_since_ms: int | None = None


@dataclass
class World:
    """Backlogs, and what their tenants have paid."""

    backlogs: list[Backlog]
    weights: dict[str, int] = field(default_factory=dict)
    paid: dict[str, int] = field(default_factory=dict)
    lane: LaneView = field(default_factory=lambda: LaneView(lane=LANE))
    now_ms: int = START_MS

    def poll(self, capacity: int) -> list[PlannedJob]:
        """Give out jobs once."""
        tenants = {backlog.tenant for backlog in self.backlogs}
        views = (
            TenantView(lane=LANE, tenant=t, weight=self.weights.get(t, 1), virtual_time=self.paid.get(t, 0))
            for t in sorted(tenants)
        )
        changes = prepare(
            ScheduleSnapshot(
                now_ms=self.now_ms,
                worker="me",
                capacity=capacity,
                limits=ScheduleLimits(),
                queues=plan_queues(
                    [self._queue(number, backlog) for number, backlog in enumerate(self.backlogs)],
                    now_ms=self.now_ms,
                    job_max=capacity,
                ),
                lanes=(self.lane,),
                tenants=tuple(views),
            )
        )
        self.paid |= {charge.tenant: charge.virtual_time for charge in changes.tenants}
        for charge in changes.lanes:
            self.lane = LaneView(
                lane=LANE,
                tenant_time=charge.tenant_time,
                virtual_time=charge.virtual_time,
                started_time=charge.started_time,
            )
        for created in changes.created:
            self.backlogs[created.plan.queue_id].served_at_ms = self.now_ms
        self.now_ms += POLL_MS
        return [created.plan for created in changes.created]

    def _queue(self, number: int, backlog: Backlog) -> BlockQueue:
        is_watched = backlog.watched_since_ms is not None
        arrived_ms = self.now_ms - 10 if backlog.watched_since_ms is None else backlog.watched_since_ms
        blocks = tuple(
            QueuedBlock(
                id=n,
                ulid=f"{number:03}-{self.now_ms}-{n}",
                arrived_at_ms=arrived_ms,
                created_at_ms=0,
                size_bytes=backlog.size_mib * MIB,
            )
            for n in range(1 if is_watched else backlog.blocks_per_poll)
        )
        return BlockQueue(
            id=number,
            lane=LANE,
            tenant=backlog.tenant,
            shard=number,
            level=backlog.level,
            policy=POLICY,
            blocks=blocks,
            served_at_ms=backlog.served_at_ms,
        )


def polls_until(world: World, capacity: int, bound: int) -> int:
    """Return how many polls it takes until the watched queue, the last one, gets its job; fail above the bound."""
    watched = len(world.backlogs) - 1
    for count in range(1, bound + 1):
        if any(plan.queue_id == watched for plan in world.poll(capacity)):
            return count
    raise AssertionError(f"not served within {bound} polls")


sizes = st.integers(1, 2000)


@pytest.mark.row("S34")
@settings(max_examples=60, deadline=None)
@given(
    lows=st.lists(st.tuples(sizes, st.integers(1, 6)), min_size=1, max_size=6),
    size=st.integers(1, 1 << 20),
    level=st.integers(1, 2),
    capacity=st.integers(1, 8),
    before=st.integers(0, 4),
)
def test_a_higher_level_waits_for_its_size_delay_and_one_job_of_each_other_queue(
    lows: list[tuple[int, int]], size: int, level: int, capacity: int, before: int
) -> None:
    world = World([Backlog("acme", 0, mib, blocks_per_poll=count) for mib, count in lows])
    for _ in range(before):
        world.poll(capacity)
    world.backlogs.append(Backlog("acme", level, size, watched_since_ms=world.now_ms))
    delay_ms = job_priority_ms(ready_at_ms=0, size_bytes=size * MIB)
    assert delay_ms <= SIZE_DELAY_MAX_MS
    turns = -(-len(lows) // capacity)
    assert polls_until(world, capacity, delay_ms // POLL_MS + turns + 2)


@settings(max_examples=60, deadline=None)
@given(
    others=st.lists(st.tuples(sizes, st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=8),
    size=sizes,
    capacity=st.integers(1, 8),
    before=st.integers(0, 6),
)
def test_a_tenant_that_comes_with_one_job_is_served_after_at_most_one_job_of_each_other(
    others: list[tuple[int, int, int]], size: int, capacity: int, before: int
) -> None:
    backlogs = [Backlog(f"t{n}", 0, mib, blocks_per_poll=count) for n, (mib, count, _) in enumerate(others)]
    world = World(backlogs, weights={f"t{n}": weight for n, (_, _, weight) in enumerate(others)})
    for _ in range(before):
        world.poll(capacity)
    world.backlogs.append(Backlog("small", 2, size, watched_since_ms=world.now_ms))
    assert polls_until(world, capacity, -(-(len(others) + 1) // capacity))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    others=st.lists(st.tuples(sizes, st.integers(1, 5)), min_size=1, max_size=5),
    size=st.integers(1, 100),
    capacity=st.integers(1, 4),
)
def test_a_small_tenant_with_a_backlog_gets_its_share_of_bytes_in_every_stretch_of_polls(
    others: list[tuple[int, int]], size: int, capacity: int
) -> None:
    backlogs = [Backlog(f"t{n}", 0, mib, blocks_per_poll=count) for n, (mib, count) in enumerate(others)]
    world = World([*backlogs, Backlog("small", 1, size, blocks_per_poll=capacity)])
    gaps, waited = [], 0
    for _ in range(30):
        waited += 1
        if any(plan.tenant == "small" for plan in world.poll(capacity)):
            gaps.append(waited)
            waited = 0
    # Between two of its jobs each other tenant catches up with the size of one, and is at most one job ahead.
    jobs_between = sum(1 + -(-size // mib) for mib, _ in others)
    assert max([*gaps, waited]) <= -(-(jobs_between + 1) // capacity) + 1
