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

from tests.faults.all_lanes import AllLanes, all_lanes
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
    """A step of a swap at which power is lost, once for each of ``lanes``."""

    name: str
    moment: Moment
    lanes: tuple[str, ...]
    is_released: bool = False
    """Whether the step takes its course, and power is lost at a random moment of it."""


# The transaction is the same for all lanes: the longest step is tried with each of them, the others with two.
STEPS = [
    SwapStep(name="before the commit", moment=Moment.BEFORE, lanes=("profiles", "catalog")),
    SwapStep(
        name="in the commit",
        moment=Moment.BEFORE,
        lanes=("profiles", "tsdb", "tables", "catalog"),
        is_released=True,
    ),
    SwapStep(name="after the commit", moment=Moment.AFTER, lanes=("tsdb", "tables")),
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
        traps = {lane: Trap(moment=step.moment, matches=lanes.swaps[lane].is_committed) for lane in step.lanes}
        with durable_stack.around.database.traps.set(*traps.values()):
            lanes.start()
            while held := held_lanes(lanes, traps):
                lose_power(durable_stack, lanes, step, {lane: traps.pop(lane) for lane in held})
        lanes.check()


def test_a_database_that_loses_power_keeps_the_swaps_of_all_lanes_that_were_acknowledged_to_workers(
    durable_stack: FaultStack, s3_credentials: None, tmp_path: Path
) -> None:
    with all_lanes(durable_stack, tmp_path, "power-told") as lanes:
        lanes.start()
        lanes.wait_until_swapped()
        with durable_stack.after_power_loss():
            for lane in lanes.swaps:
                assert WHOLE in lanes.swap_states(lane), lane
        lanes.check()


def held_lanes(lanes: AllLanes, traps: dict[str, Trap]) -> list[str]:
    """Wait until swaps of these lanes are in their traps, and return the lanes.

    One transaction may hold swaps of two lanes, and only one of two traps gets it: none is left if the rest is done.
    """

    def held() -> list[str]:
        return [lane for lane, trap in traps.items() if trap.client_port]

    wait_until(lambda: held() or lanes.are_swapped(traps), f"a swap of {[*traps]}", SETTLE_SECONDS)
    return held()


def lose_power(stack: FaultStack, lanes: AllLanes, step: SwapStep, held: dict[str, Trap]) -> None:
    """Lose power at the step of these lanes' swaps; check the index before any process reaches it."""
    if step.is_released:
        pause_s = random.uniform(0, COMMIT_SECONDS)
        print(f"power is lost {pause_s} s after the commits of {[*held]} were released")  # shown if the test fails
        for trap in held.values():
            trap.let_go(Fate.PASS)
        time.sleep(pause_s)
    with stack.after_power_loss():
        [(registered,)] = stack.rows(REGISTERED, lanes.shard)
        assert registered == lanes.segment_count
        for lane in lanes.swaps:
            assert set(lanes.swap_states(lane)) <= {WHOLE, ABSENT}, lane
        lanes.check_readers()
        for trap in held.values():
            trap.let_go()
