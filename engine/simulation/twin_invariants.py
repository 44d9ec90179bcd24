"""Invariants that compare a world with a twin of it: read in another order, built anew, or with other worker clocks."""

from __future__ import annotations

import random
from dataclasses import replace

from engine.lanes.profiles.plan.consolidation import plan_queues
from engine.schedule.prepare import prepare
from engine.simulation.audit import Audit, InvariantBroken, Step
from engine.simulation.memory_schedule import MemorySchedule
from engine.simulation.restart import restarted
from engine.simulation.snapshots import PollOrder, read_poll

PROBE_CAPACITIES = (1, 3, 50)


def invariant_22_determinism(audit: Audit, step: Step) -> None:
    """The same content and time give the same change set, whatever the order in which rows were read."""
    assert step.poll is not None
    snapshot, queues = step.poll.view.snapshot, step.poll.view.queues
    if len(snapshot.assignable) < 2 and len(queues) < 2 and not any(queue.remnants for queue in queues):
        return  # there is one order only
    turned = [replace(queue, remnants=queue.remnants[::-1]) for queue in queues[::-1]]
    mirrored = replace(
        snapshot,
        assignable=snapshot.assignable[::-1],
        queues=plan_queues(turned, now_ms=snapshot.now_ms, job_max=snapshot.capacity),
        lanes=snapshot.lanes[::-1],
        tenants=snapshot.tenants[::-1],
        paused=snapshot.paused[::-1],
    )
    if prepare(mirrored) != step.poll.change_set:
        raise InvariantBroken(22, f"a poll of {snapshot.worker} decides otherwise when rows come in another order")


def invariant_23_restart_equivalence(schedule: MemorySchedule, draw: random.Random) -> None:
    """A process that starts now, and reads the rows in any order, decides the same (with it 22)."""
    copy = restarted(schedule, draw)
    for capacity in PROBE_CAPACITIES:
        order = PollOrder("somebody new", capacity)
        mine, other = (read_poll(each, order).snapshot for each in (schedule, copy))
        if mine != other:
            raise InvariantBroken(23, f"after a restart a poll of capacity {capacity} sees something else")
        if prepare(mine) != prepare(other):
            raise InvariantBroken(22, f"after a restart a poll of capacity {capacity} decides otherwise")


def invariant_28_clock(mine: dict[str, object], other: dict[str, object]) -> None:
    """Two worlds that differ in the clocks of their workers alone hold the same rows in the end."""
    different = [table for table in mine if mine[table] != other[table]]
    if different:
        raise InvariantBroken(28, f"the clocks of workers have changed {different}")
