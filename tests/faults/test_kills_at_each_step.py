"""``kill -9`` at each step of a block's life: whichever process dies, and wherever, no sample is lost or doubled.

A proxy holds what the step would do (or the answer to it, when it is done); the process that waits for it is
killed; the rest continues by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.faults.stack import CONTROLS, NODES, WEBS, FaultStack
from tests.faults.steps import SWAPPED, Matches, Step, commit, report
from tests.faults.traps import Moment

BEFORE, AFTER = Moment.BEFORE, Moment.AFTER


@dataclass(frozen=True, kw_only=True)
class BlockStep(Step):
    """A step of a block's life; ``match`` is given its shard."""

    is_counted: bool = False
    """Whether a job was in the victim's hands, so that its run must have expired."""
    done: str = ""
    """Counts what the step does in the database, so that a trap cannot strike at another moment than it says."""


def store(method: str, folder: str) -> Matches:
    return lambda shard: lambda request: request.is_about(method, f"/{folder}/{shard}/")


def statement(text: bytes) -> Matches:
    return lambda _: lambda said: text in said.text


def both(name: str, *, on: str, match: Any, victims: tuple[str, ...], **more: Any) -> list[BlockStep]:
    """The step killed before it takes effect, and after."""
    return [
        BlockStep(name=f"before {name}", on=on, match=match, moment=BEFORE, victims=victims, **more),
        BlockStep(name=f"after {name}", on=on, match=match, moment=AFTER, victims=victims, **more),
    ]


ADDED = commit("add_blocks", "profiles_block")
# By parameter values, because prepared statements are sent without their text; the log entry of a new job has sources.
ASSIGNED = commit("sources", "-S{shard}-L0")
CONFIRMED = commit('UPDATE "profiles_tombstone" SET "deleted_at_ms"')
DISPATCHED = statement(b'UPDATE "profiles_tombstone" SET "dispatched_at_ms"')
NODE: dict[str, Any] = {"moment": BEFORE, "victims": NODES, "is_counted": True}
BLOCKS = "SELECT count(*) FROM profiles_block WHERE shard = %s"
JOBS = "SELECT count(*) FROM schedule_job WHERE shard = %s AND state = '{}'"
SENT = (
    "SELECT count(*) FROM profiles_tombstone t JOIN profiles_block b ON t.block_id = b.id"
    " WHERE shard = %s AND {}_at_ms IS NOT NULL"
)

FIRST_READ = BlockStep(name="before its first read", on="store", match=store("GET", "segments"), **NODE)
FIRST_UPLOAD = BlockStep(name="before its first upload", on="store", match=store("PUT", "blocks"), **NODE)
NODE_STEPS = [
    FIRST_READ,
    FIRST_UPLOAD,
    replace(FIRST_UPLOAD, name="before its last upload", call=2),
    replace(FIRST_UPLOAD, name="after its last upload", call=2, moment=AFTER),
    BlockStep(name="before its report", on="service", match=report, **NODE),
    BlockStep(name="after its report", on="service", match=report, moment=AFTER, victims=NODES),
]
WEB_STEPS = [
    *both("adding blocks", on="database", match=ADDED, victims=WEBS, done=BLOCKS),
    *both("assigning a job", on="database", match=ASSIGNED, victims=WEBS, done=JOBS.format("leased")),
    *both("the swap", on="database", match=SWAPPED, victims=WEBS, done=JOBS.format("done")),
]
CONTROL_STEPS = [
    *both("recording lineage", on="store", match=store("PUT", "lineage"), victims=CONTROLS),
    *both("dispatching tombstones", on="database", match=DISPATCHED, victims=CONTROLS, done=SENT.format("dispatched")),
    *both("the second deletion", on="store", match=store("DELETE", "segments"), victims=CONTROLS, call=2),
    *both("confirming deletions", on="database", match=CONFIRMED, victims=CONTROLS, done=SENT.format("deleted")),
]


def kill_at(stack: FaultStack, step: BlockStep) -> None:
    shard = stack.new_shard()
    segments = stack.put_segments(shard, 4)
    expected = stack.samples(segments)
    trap, is_set = step.set_trap(stack, shard)
    with is_set:
        adding = stack.in_background(lambda: stack.register(segments))
        trap.wait()
        if step.done:
            assert bool(stack.rows(step.done, shard)[0][0]) == (step.moment is AFTER)
        stack.kill_client(trap, *step.victims)
    adding.result()
    stack.check(shard, expected)
    if step.is_counted:
        assert stack.attempts(shard)["expired"] >= 1


@pytest.mark.parametrize("step", NODE_STEPS, ids=lambda step: step.name)
def test_a_node_killed_at_any_step_loses_and_doubles_nothing(fault_stack: FaultStack, step: BlockStep) -> None:
    kill_at(fault_stack, step)


@pytest.mark.parametrize("step", WEB_STEPS, ids=lambda step: step.name)
def test_a_web_process_killed_at_any_step_loses_and_doubles_nothing(fault_stack: FaultStack, step: BlockStep) -> None:
    kill_at(fault_stack, step)


@pytest.mark.parametrize("step", CONTROL_STEPS, ids=lambda step: step.name)
def test_a_control_worker_killed_at_any_step_of_a_deletion_deletes_all_and_nothing_else(
    fault_stack: FaultStack, step: Step
) -> None:
    kill_at(fault_stack, step)
