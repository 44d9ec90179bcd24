"""PostgreSQL loses power around the commit of a swap: it starts from a copy of its data folder as of that moment.

What was acknowledged before is there, and each swap is whole or absent; a swap acknowledged to a worker is there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.all_lanes import AllLanes, all_lanes
from tests.faults.stack import SETTLE_SECONDS, FaultStack
from tests.faults.traps import Fate, Moment, Trap
from tests.processes import wait_until

COMMIT_SECONDS = 0.02
"""A commit takes less: power is lost at a random moment before, in or after it."""
REGISTERED = "SELECT count(*) FROM profiles_block WHERE shard = %s AND level = 0"
WHOLE, ABSENT = (True, False, True), (False, True, False)


@pytest.fixture(scope="module")
def durable_stack(fault_stack: FaultStack) -> Iterator[FaultStack]:
    """The stack on a database that synchronises its files with the disk."""
    with fault_stack.around.postgresql.durable():
        yield fault_stack


def test_a_database_that_loses_power_at_each_swap_keeps_what_was_acknowledged_and_all_or_nothing_of_the_swap(
    durable_stack: FaultStack, s3_credentials: None, tmp_path: Path
) -> None:
    assert durable_stack.rows("SHOW fsync") == [("on",)]
    with all_lanes(durable_stack, tmp_path, "power") as lanes:
        traps = {lane: Trap(moment=Moment.BEFORE, matches=swap.is_committed) for lane, swap in lanes.swaps.items()}
        with durable_stack.around.database.traps.set(*traps.values()):
            lanes.start()
            while held := held_lanes(lanes, traps):
                lose_power(durable_stack, lanes, {lane: traps.pop(lane) for lane in held})
        lanes.wait_until_swapped()
        with durable_stack.after_power_loss():
            for lane in lanes.swaps:
                assert WHOLE in lanes.swap_states(lane), f"a worker was told that the swap of {lane} is there"
        lanes.check()


def held_lanes(lanes: AllLanes, traps: dict[str, Trap]) -> list[str]:
    """Wait until swaps of these lanes are in their traps, and return the lanes.

    One transaction may hold swaps of two lanes, and only one of two traps gets it: none is left if the rest is done.
    """

    def held() -> list[str]:
        return [lane for lane, trap in traps.items() if trap.client_port]

    wait_until(lambda: held() or lanes.are_swapped(traps), f"a swap of {[*traps]}", SETTLE_SECONDS)
    return held()


def lose_power(stack: FaultStack, lanes: AllLanes, held: dict[str, Trap]) -> None:
    """Release the commits of these lanes' swaps, and lose power before, in or after them.

    Check the index before any process reaches it.
    """
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
