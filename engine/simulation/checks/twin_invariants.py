"""Invariants that compare a state with a second one: read in another order, rebuilt, or with other worker clocks."""

from __future__ import annotations

import random
from dataclasses import replace

from engine.lanes.profiles.plan.consolidation import plan_queues
from engine.schedule.prepare import prepare
from engine.simulation.checks.audit import Audit, InvariantBroken, Step
from engine.simulation.memory.restart import restarted
from engine.simulation.memory.schedule import MemorySchedule
from engine.simulation.memory.snapshots import PollRequest, read_poll

PROBE_CAPACITIES = (1, 3, 50)


def invariant_22_determinism(audit: Audit, step: Step) -> None:
    """Equal content and time give equal change sets, whatever the order in which rows are read."""
    assert step.poll is not None
    snapshot, queues = step.poll.view.snapshot, step.poll.view.queues
    if len(snapshot.assignable) < 2 and len(queues) < 2 and not any(queue.partial_batches for queue in queues):
        return  # only one order is possible
    turned = [replace(queue, partial_batches=queue.partial_batches[::-1]) for queue in queues[::-1]]
    mirrored = replace(
        snapshot,
        assignable=snapshot.assignable[::-1],
        queues=plan_queues(turned, now_ms=snapshot.now_ms, job_max=snapshot.capacity),
        lanes=snapshot.lanes[::-1],
        tenants=snapshot.tenants[::-1],
        paused=snapshot.paused[::-1],
    )
    if prepare(mirrored) != step.poll.change_set:
        raise InvariantBroken(22, f"a poll of {snapshot.worker} decides differently if rows are read in another order")


def invariant_23_restart_equivalence(schedule: MemorySchedule, draw: random.Random) -> None:
    """A process that starts now and reads the rows in any order makes the same decisions (also 22)."""
    copy = restarted(schedule, draw)
    for capacity in PROBE_CAPACITIES:
        request = PollRequest("new worker", capacity)
        mine, other = (read_poll(each, request).snapshot for each in (schedule, copy))
        if mine != other:
            raise InvariantBroken(23, f"after a restart a poll of capacity {capacity} sees something else")
        if prepare(mine) != prepare(other):
            raise InvariantBroken(22, f"after a restart a poll of capacity {capacity} decides otherwise")


def invariant_28_clock(mine: dict[str, object], other: dict[str, object]) -> None:
    """Two simulations that differ only in worker clocks end with the same rows."""
    different = [table for table in mine if mine[table] != other[table]]
    if different:
        raise InvariantBroken(28, f"the clocks of workers have changed {different}")
