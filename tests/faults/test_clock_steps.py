"""The wall clock of one process jumps by a day while it works: nothing is lost, doubled or stuck.

Leases, ids, delays and retention rest on the database's clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.faults.stack import CONTROLS, NODES, WEBS, FaultStack

STEP = timedelta(days=1)
ROUNDS_MAX = 20


@pytest.mark.parametrize("step", [STEP, -STEP], ids=["ahead", "back"])
def test_a_stepped_wall_clock_of_one_process_changes_nothing(fault_stack: FaultStack, step: timedelta) -> None:
    for name in (WEBS[1], NODES[1], CONTROLS[1]):
        dates = {(datetime.now(UTC) + step + late).date().isoformat() for late in (timedelta(), timedelta(hours=1))}
        with fault_stack.clocks[name].stepped(round(step.total_seconds())):
            for _ in range(ROUNDS_MAX):  # the work of a round may all go to the other of the two
                shard = fault_stack.new_shard()
                expected = fault_stack.write_segments(shard, 4)
                assert fault_stack.check(shard, expected) == []
                if logged_at(fault_stack, name, dates):
                    break
            else:
                pytest.fail(f"{name} logged nothing at the time of its clock\n{fault_stack.story()}")


def logged_at(stack: FaultStack, name: str, dates: set[str]) -> bool:
    """Tell whether a program has logged something on one of these dates: it does have that clock."""
    lines = (line.partition("|") for line in stack.log.getvalue().splitlines())
    return any(date in text for program, _, text in lines if program.strip().endswith(name) for date in dates)
