"""Time to plan a million Prometheus blocks of a thousand tenants by interval, on one core.

A tenant has a backlog of four weeks: three replicas of every two hours, as uploaded, none compacted. The time is that
of the plans, with the status of every block, all slots, and the compactions to the fix-point, without the creation of
snapshots. Blocks that are final, each a day with 36 sources, are measured separately.
"""

from __future__ import annotations

import time

from engine.lanes.tsdb.plan.model import IntervalBlock, IntervalPlan
from engine.lanes.tsdb.plan.plan import plan_intervals
from engine.lanes.tsdb.plan.policy import HOUR_MS, MINUTE_MS, IntervalPolicy
from tests.bench.figures import Figures, cpu_seconds

NAME = "interval_plan"
TENANTS, BLOCKS = 1_000, 1_000
SNAPSHOTS = 50
"""Distinct snapshots that are planned in turn, each for several tenants; ``--full`` generates one per tenant."""
REPLICAS = 3
LARGE = 10
POLICY = IntervalPolicy(partition_series=1_000_000)
START_MS = 1_700_000_000_000 // (24 * HOUR_MS) * 24 * HOUR_MS


def run(full: bool = False) -> Figures:
    """Run the benchmark; ``s`` is the wall time of all plans, ``cpu_s`` their CPU time."""
    snapshots = TENANTS if full else SNAPSHOTS
    elapsed = used = 0.0
    groups = compactions = 0
    for number in range(snapshots):
        blocks = snapshot(number, BLOCKS)
        for turn in range(TENANTS // snapshots):
            began, began_used = time.perf_counter(), time.process_time()
            found = plan(f"tenant-{number}-{turn}", blocks)
            elapsed += time.perf_counter() - began
            used += time.process_time() - began_used
            groups += len(found.groups)
            compactions += found.compactions
    assert len(found.statuses) == BLOCKS
    large = snapshot(0, LARGE * BLOCKS)
    days = finished(BLOCKS)
    assert not plan("finished", days).groups
    idle = min(cpu_seconds(lambda: plan("finished", days)) for _ in range(5))
    growth = min(cpu_seconds(lambda: plan("large", large)) for _ in range(3)) / LARGE / (used / TENANTS)
    return Figures(
        parameters={
            "tenants": TENANTS,
            "blocks_per_tenant": BLOCKS,
            "snapshots": snapshots,
            "groups": groups,
            "compactions": compactions,
        },
        figures={
            "s": elapsed,
            "cpu_s": used,
            "us_per_block": used / TENANTS / BLOCKS * 1e6,
            "finished_us_per_block": idle / BLOCKS * 1e6,
            "growth_10x_blocks": growth,
        },
    )


def snapshot(tenant: int, count: int) -> list[IntervalBlock]:
    """Return the backlog of one tenant: first samples are not aligned, interval boundaries are."""
    blocks = []
    for number in range(count):
        start_ms = START_MS + number // REPLICAS * 2 * HOUR_MS
        ulid = f"{tenant:06d}{number:020d}"
        blocks.append(
            IntervalBlock(
                ulid=ulid,
                min_time_ms=start_ms + number * 7919 % 15_000,
                max_time_ms=start_ms + 2 * HOUR_MS,
                group_key="0@17241709254077376921",
                series=400_000,
                index_bytes=60 << 20,
                size_bytes=900 << 20,
                uploaded_at_ms=start_ms + 2 * HOUR_MS + number % REPLICAS * MINUTE_MS,
                sources=(ulid,),
            )
        )
    return blocks


def finished(count: int) -> list[IntervalBlock]:
    """Return the fully compacted blocks of ``count`` days."""
    return [
        IntervalBlock(
            ulid=f"9{number:025d}",
            min_time_ms=START_MS + number * 24 * HOUR_MS,
            max_time_ms=START_MS + (number + 1) * 24 * HOUR_MS,
            level=4,
            group_key="0@17241709254077376921",
            time_range_ms=24 * HOUR_MS,
            sources=tuple(f"{number:016d}{source:010d}" for source in range(36)),
        )
        for number in range(count)
    ]


def plan(tenant: str, blocks: list[IntervalBlock]) -> IntervalPlan:
    return plan_intervals(tenant, blocks, POLICY, now_ms=blocks[-1].max_time_ms + HOUR_MS)
