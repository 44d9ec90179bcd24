"""PostgreSQL loses power at each step of a swap: it starts from a copy of its data folder as it was at that moment.

What was acknowledged before is there, and each swap is whole or absent; a swap acknowledged to a worker is there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.faults.stack import LIVE, FaultStack
from tests.faults.steps import SWAPPED, Step, report
from tests.faults.traps import Fate, Moment

COMMIT_SECONDS = 0.02
"""A commit takes less: power is lost at a random moment before, in or after it."""
REGISTERED = "SELECT count(*) FROM profiles_block WHERE shard = %s AND level = 0"
SWAPS = f"""
SELECT j.state = 'done', count(*) FILTER (WHERE b.state IN {LIVE}) > 0, r.count > 0
FROM schedule_job j
JOIN profiles_block b ON b.owner_job_id = j.id
CROSS JOIN LATERAL (SELECT count(*) FROM profiles_blocklineage WHERE job_id = j.id) r
WHERE j.shard = %s GROUP BY j.id, r.count
"""
"""Of each job: whether it is done, whether a source is live, whether a result is there."""
WHOLE, ABSENT = (True, False, True), (False, True, False)


@dataclass(frozen=True, kw_only=True)
class SwapStep(Step):
    """A step of a swap, from the commit to the answer to the worker."""

    is_released: bool = False
    """Whether the step takes its course, and power is lost at a random moment of it."""
    names_partition: bool = False
    """Whether the worker was told of the swap, so that it must be there."""


STEPS = [
    SwapStep(name="before the commit", on="database", match=SWAPPED, moment=Moment.BEFORE),
    SwapStep(name="in the commit", on="database", match=SWAPPED, moment=Moment.BEFORE, is_released=True),
    SwapStep(name="after the commit", on="database", match=SWAPPED, moment=Moment.AFTER),
    SwapStep(name="after the answer", on="service", match=report, moment=Moment.AFTER, names_partition=True),
]


@pytest.fixture(scope="module")
def durable_stack(fault_stack: FaultStack) -> Iterator[FaultStack]:
    """The stack on a database that synchronises its files with the disk."""
    with fault_stack.around.postgresql.durable():
        yield fault_stack


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_database_that_loses_power_at_the_swap_keeps_what_was_acknowledged_and_all_or_nothing_of_the_swap(
    durable_stack: FaultStack, step: SwapStep
) -> None:
    postgresql, shard = durable_stack.around.postgresql, durable_stack.new_shard()
    assert postgresql.rows("SHOW fsync") == [("on",)]
    trap, is_set = step.set_trap(durable_stack, shard)
    with is_set:
        expected = durable_stack.write_segments(shard)
        trap.wait()
        if step.is_released:
            trap.let_go(Fate.PASS)
            pause_s = random.uniform(0, COMMIT_SECONDS)
            print(f"power is lost {pause_s} s after the commit was let go")  # shown if the test fails
            time.sleep(pause_s)
        with durable_stack.after_power_loss():
            assert postgresql.rows(REGISTERED, shard) == [(8,)]
            swaps = postgresql.rows(SWAPS, shard)
    assert set(swaps) <= {WHOLE, ABSENT}
    if step.names_partition:
        assert WHOLE in swaps
    durable_stack.check(shard, expected)
