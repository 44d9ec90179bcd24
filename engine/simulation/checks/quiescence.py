"""Invariants of the whole state, and of an idle one; each reads all rows and uses no maintained sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from engine.schedule.model import HOLDING_STATES, LIVE_STATES, JobState
from engine.simulation.checks.audit import Audit
from engine.simulation.checks.invariants import demand
from engine.simulation.memory.actions import ACTIONS
from engine.simulation.memory.command_clock import CommandClock
from engine.simulation.memory.lineage import Item, ancestors, items_in
from engine.simulation.memory.queues import place_ms
from engine.simulation.memory.rows import LIVE_BLOCKS, BlockState
from engine.simulation.memory.schedule import MemorySchedule
from engine.simulation.scenario import START_MS, Scenario


def check_rest(audit: Audit, scenario: Scenario, *, is_quiet: bool) -> None:
    """Check a simulation that had enough time and workers to become idle."""
    schedule = audit.schedule
    invariant_12_liveness_at_the_limit(schedule, is_quiet=is_quiet)
    invariant_15_time_based_progress(schedule, is_quiet=is_quiet)
    invariant_03_conservation(audit)
    invariant_04_no_vanishing(audit)
    invariant_16_replay(schedule, scenario)
    check_sums(schedule)


def invariant_03_conservation(audit: Audit) -> None:
    """Every item accepted and not removed is in exactly one live block that shows it, found through the lineage."""
    schedule = audit.schedule
    found: Counter[Item] = Counter()
    for block in schedule.blocks.values():
        if block.state in LIVE_BLOCKS:
            for share in block.shares:
                if audit.is_visible(block, share):
                    found.update(items_in(schedule, block, share))
    expected = Counter(audit.items)
    demand(3, found == expected, f"{sum((found - expected).values())} items too often, {len(expected - found)} gone")


def invariant_04_no_vanishing(audit: Audit) -> None:
    """Every accepted block is live, was removed, or is in the lineage of such a block."""
    schedule = audit.schedule
    ends = [block.ulid for block in schedule.blocks.values() if block.state in LIVE_BLOCKS]
    reached = {ulid for end in (*ends, *audit.let_go) for ulid in ancestors(schedule, end)}
    gone = audit.ever.keys() - reached
    demand(4, not gone, f"{len(gone)} blocks vanished, e.g. {min(gone, default='')}")


def invariant_12_liveness_at_the_limit(schedule: MemorySchedule, *, is_quiet: bool) -> None:
    """A schedule full of faulty jobs still accepts new ones: at rest no batch waits for a place."""
    limit = schedule.limits.queue_max
    is_full = 0 < limit <= schedule.live_job_count
    demand(12, is_quiet or not is_full, f"{schedule.live_job_count} jobs fill the schedule and nothing moves")


def invariant_15_time_based_progress(schedule: MemorySchedule, *, is_quiet: bool) -> None:
    """Without arrivals every queued block is planned, and every job ends or is parked."""
    waiting = {queue.level: len(queue.entries) for queue in schedule.queues.by_id.values() if queue.entries}
    message = f"still there after all that time: blocks by level {waiting}, {schedule.live_job_count} jobs"
    demand(15, is_quiet, message)


def invariant_16_replay(schedule: MemorySchedule, scenario: Scenario) -> None:
    """Replaying the whole log on an empty schedule gives the same rows."""
    copy = MemorySchedule(
        limits=scenario.limits,
        policies=schedule.policies,
        cleanup_delay_ms=schedule.cleanup_delay_ms,
        clock=CommandClock(START_MS),
        refuses_known=schedule.refuses_known,
        trusts_late_results=schedule.trusts_late_results,
    )
    for command in schedule.log:
        copy.clock.wall_ms = command.wall_ms
        _replay(copy, command.kind, command.arguments)
    mine, other = dump(schedule), dump(copy)
    different = [table for table in mine if mine[table] != other[table]]
    demand(16, not different, f"the log does not lead to the same {different}")


def check_sums(schedule: MemorySchedule) -> None:
    """Invariant 23, restart equivalence: all input of decisions follows from the rows alone."""
    states = Counter(job.state for job in schedule.jobs.values())
    demand(23, schedule.live_job_count == sum(states[state] for state in LIVE_STATES), "live jobs counted wrong")
    demand(23, schedule.parked_count == states[JobState.PARKED], "parked jobs counted wrong")
    queued = [block for block in schedule.blocks.values() if block.state is BlockState.QUEUED]
    demand(23, schedule.queues.block_count == len(queued), "queued blocks counted wrong")
    for queue in schedule.queues.by_id.values():
        entries = sorted((block.view.arrived_at_ms, block.ulid) for block in queued if block.queue is queue)
        demand(23, [entry[:2] for entry in queue.entries] == entries, f"queue {queue.id} is not its blocks in order")
        demand(23, queue.byte_count == sum(entry[2].size_bytes for entry in queue.entries), f"queue {queue.id}: bytes")
        demand(23, queue.place_ms == place_ms(queue), f"queue {queue.id} is at the wrong place")
    waiting = [job for job in schedule.jobs.values() if job.state is JobState.WAITING]
    line = sorted((job.priority_ms, job.name) for job in waiting)
    demand(23, schedule.queues.waiting == line, "waiting jobs are out of order")
    for row in schedule.queues.tenants.values():
        jobs = [job for job in schedule.jobs.values() if job.tenant == row.tenant]
        running = sum(job.state is JobState.LEASED for job in jobs)
        demand(23, row.running_count == running, f"running jobs of tenant {row.tenant!r} are counted wrong")
        places = sorted(
            (queue.place_ms, queue.id)
            for queue in schedule.queues.by_id.values()
            if queue.tenant == row.tenant and queue.place_ms is not None
        )
        demand(23, row.queues == places, f"queues of tenant {row.tenant!r} are out of order")


def dump(schedule: MemorySchedule) -> dict[str, Any]:
    """Return all rows without the columns that renewals change, which are not logged."""
    return {
        "blocks": {
            ulid: (
                block.state,
                block.owner.name if block.owner else "",
                block.level,
                block.view.arrived_at_ms,
                block.shares,
                block.masks_applied,
            )
            for ulid, block in schedule.blocks.items()
        },
        "jobs": {
            name: (
                (job.id, job.state, job.token, job.worker, job.failures, job.parked_kind),
                (job.masks, job.root, job.is_rewrite, [block.ulid for block in job.sources]),
            )
            for name, job in schedule.jobs.items()
            if job.state in HOLDING_STATES
        },
        "queues": {queue.id: [entry[:2] for entry in queue.entries] for queue in schedule.queues.by_id.values()},
        "tenants": {
            name: (row.virtual_time, row.weight, row.running_max) for name, row in schedule.queues.tenants.items()
        },
        "orders": (schedule.masks, schedule.paused, schedule.limits),
        "ledger": schedule.ledger,
        "tombstones": {ulid: tombstone.eligible_at_ms for ulid, tombstone in schedule.tombstones.items()},
        "head": (schedule.last_index, schedule.live_job_count, schedule.parked_count, schedule.clock.head_time_ms),
    }


def _replay(schedule: MemorySchedule, kind: str, arguments: tuple[Any, ...]) -> None:
    if kind == "requeue":
        schedule.requeue(schedule.jobs[arguments[0]])
    else:
        actions: dict[str, Callable[..., object]] = {
            "add": schedule.add_blocks,
            "limits": schedule.change_limits,
            "advance_clock": schedule.advance_clock,
            "deleted": schedule.confirm_deletion,
            "update_plan": schedule.replay,
        }
        if kind in ACTIONS:
            ACTIONS[kind](schedule, *arguments)
        else:
            actions[kind](*arguments)
