"""PostgreSQL loses power at each step of a swap: it starts from a copy of its data folder as it was at that moment.

What was acknowledged before is there, and each swap is whole or absent; a swap acknowledged to a worker is there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.all_lanes import AllLanes
from tests.faults.stack import SETTLE_SECONDS, FaultStack
from tests.faults.test_block_kills import adopted
from tests.faults.traps import Fate, Moment, Trap
from tests.processes import wait_until

COMMIT_SECONDS = 0.02
"""A commit takes less: power is lost at a random moment before, in or after it."""
REGISTERED = "SELECT count(*) FROM profiles_block WHERE shard = %s AND level = 0"
WHOLE, ABSENT = (True, False, True), (False, True, False)


@dataclass(frozen=True, kw_only=True)
class SwapStep:
    """A step of a swap, from the commit to the answer to the worker."""

    name: str
    moment: Moment
    is_released: bool = False
    """Whether the step takes its course, and power is lost at a random moment of it."""
    is_reported: bool = False
    """Whether the worker was told of the swap, so that it must be there."""


STEPS = [
    SwapStep(name="before the commit", moment=Moment.BEFORE),
    SwapStep(name="in the commit", moment=Moment.BEFORE, is_released=True),
    SwapStep(name="after the commit", moment=Moment.AFTER),
    SwapStep(name="after the answer", moment=Moment.AFTER, is_reported=True),
]


@pytest.fixture(scope="module")
def durable_stack(fault_stack: FaultStack) -> Iterator[FaultStack]:
    """The stack on a database that synchronises its files with the disk."""
    with fault_stack.around.postgresql.durable():
        yield fault_stack


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_database_that_loses_power_at_a_swap_of_any_lane_keeps_what_was_acknowledged_and_all_or_nothing_of_the_swap(
    durable_stack: FaultStack, s3_credentials: None, tmp_path: Path, step: SwapStep
) -> None:
    assert durable_stack.rows("SHOW fsync") == [("on",)]
    name = f"power-{STEPS.index(step)}"
    with adopted(durable_stack, "cortex", name) as bucket:
        lanes = AllLanes(durable_stack, bucket, tmp_path, name)
        matches = {
            lane: swap.is_reported if step.is_reported else swap.is_committed for lane, swap in lanes.swaps.items()
        }
        traps = {lane: Trap(moment=step.moment, matches=match) for lane, match in matches.items()}
        way = durable_stack.service if step.is_reported else durable_stack.around.database
        with way.traps.set(*traps.values()):
            lanes.start()
            while traps:
                lane = next_lane(traps)
                lose_power(durable_stack, lanes, lane, step, traps.pop(lane))
        lanes.check()


def next_lane(traps: dict[str, Trap]) -> str:
    """Wait until the swap of one of these lanes is in its trap."""
    wait_until(lambda: any(trap.client_port for trap in traps.values()), f"a swap of {[*traps]}", SETTLE_SECONDS)
    return next(lane for lane, trap in traps.items() if trap.client_port)


def lose_power(stack: FaultStack, lanes: AllLanes, lane: str, step: SwapStep, trap: Trap) -> None:
    """Lose power at the step of this lane's swap; check the index before any process reaches it."""
    if step.is_released:
        trap.let_go(Fate.PASS)
        pause_s = random.uniform(0, COMMIT_SECONDS)
        print(f"power is lost {pause_s} s after the commit of {lane} was let go")  # shown if the test fails
        time.sleep(pause_s)
    with stack.after_power_loss():
        [(registered,)] = stack.rows(REGISTERED, lanes.shard)
        assert registered == lanes.segment_count
        for each in lanes.swaps:
            assert set(lanes.swap_states(each)) <= {WHOLE, ABSENT}, each
        if step.is_reported:
            assert WHOLE in lanes.swap_states(lane), f"the worker was told that the swap of {lane} is there"
        lanes.tenant.check_readers()
        lanes.table.shown()
        trap.let_go()
