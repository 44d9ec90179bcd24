"""Determine why the schedule makes no progress: blockers by name, the most important first. Pure.

Unhealthy means that an operator has to act now: work is due, nothing was completed for too long, and no operator
intends that. A pause is intended: it is listed, but does not make the schedule unhealthy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.schedule.progress import count_text, seconds_text
from webadmin.progress.facts import Standstill

COUNTING_LATE_MS = 3 * 60_000
"""Counting runs every 15 seconds: if it is this late, beat or control is not running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One reason why work makes no progress, and its remedy.

    ``code`` is stable. ``is_for_due_work`` is False for what is blocked on its own while other work continues.
    """

    code: str
    text: str
    remedy: str
    is_for_due_work: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the schedule makes progress. ``blockers`` are listed even while it is healthy."""

    is_healthy: bool
    summary: str
    blockers: Sequence[Blocker]
    paused: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for the progress check; it contains names unless the facts were ``without_names``."""
        return {
            "status": "ok" if self.is_healthy else "stalled",
            "summary": self.summary,
            "blocker": next((blocker.code for blocker in self.blockers if blocker.is_for_due_work), None),
            "blockers": [{"code": b.code, "text": b.text, "remedy": b.remedy} for b in self.blockers],
            "paused": list(self.paused),
        }


def without_names(facts: Standstill) -> Standstill:
    """Return the facts with counts instead of the names of tenants and jobs, for the progress check."""
    named = ("tenant", "job")
    paused = [f"a {text.split()[0]}" if text.startswith(named) else text for text in facts.paused]
    reached = "cap is reached" if len(facts.capped) == 1 else "caps are reached"
    return replace(
        facts,
        paused=tuple(paused),
        capped=(f"{len(facts.capped)} {reached}",) if facts.capped else (),
        isolation_stop="too many sources are bad" if facts.isolation_stop else "",
    )


def judge(facts: Standstill, *, stalled_after_seconds: int) -> Health:
    """Return whether the schedule makes progress, and its blockers."""
    blockers = (*_blockers(facts), *_counting(facts), *_set_aside(facts))
    is_counting = facts.counted_ms_ago is not None and facts.counted_ms_ago <= COUNTING_LATE_MS
    is_stalled = facts.is_work_due and facts.stalled_ms is not None and facts.stalled_ms > stalled_after_seconds * 1000
    is_broken = facts.is_merging_broken or bool(facts.isolation_stop) or bool(facts.log_behind or facts.unsafe_database)
    is_healthy = is_counting and not is_stalled and not is_broken
    if is_stalled and not any(blocker.is_for_due_work for blocker in blockers):
        blockers = (_slow(facts), *blockers)
    return Health(is_healthy=is_healthy, summary=_summary(facts, blockers), blockers=blockers, paused=facts.paused)


def counting_late(counted_ms_ago: int | None) -> str:
    """Return, as text, that progress was not counted for too long; "" if it was."""
    if counted_ms_ago is None:
        return "progress was never counted"
    if counted_ms_ago > COUNTING_LATE_MS:
        return f"progress was last counted {seconds_text(counted_ms_ago / 1000)} ago"
    return ""


def _blockers(facts: Standstill) -> Iterator[Blocker]:
    yield from _database_blockers(facts)
    for broken in facts.broken_builds:
        yield Blocker(
            code="merging_broken",
            text=broken,
            remedy="check its parked jobs, then move the nodes to another build; detection of bad blocks is "
            "disabled until then",
        )
    if facts.isolation_stop:
        yield Blocker(
            code="quarantine_stopped",
            text=f"quarantine is stopped: {facts.isolation_stop}",
            remedy="check the object store, then decide on the page of the stop whether sources are retried or "
            "quarantined",
        )
    if facts.is_work_due and not facts.polling_workers:
        known = f"{facts.known_workers} known and silent" if facts.known_workers else "none has ever polled"
        yield Blocker(
            code="no_workers", text=f"work is due and no worker polls: {known}", remedy="start a compactor node"
        )
    if facts.queue_max and facts.live_jobs >= facts.queue_max:
        yield Blocker(
            code="schedule_full",
            text=f"the schedule holds {facts.live_jobs} jobs and its limit is {facts.queue_max}",
            remedy="add workers, or raise queue_max",
        )
    if facts.is_work_due and facts.polling_workers and not facts.offered_capacity and not facts.leased_jobs:
        yield Blocker(
            code="no_capacity",
            text=f"{count_text(facts.polling_workers, 'worker')} polling, and none offers a free slot",
            remedy="check the node logs: a node that is not ready, backs off or is disconnected from its broker "
            "offers no slots",
        )
    if facts.expired_jobs and facts.expired_jobs == facts.leased_jobs:
        leases = "the lease of the only running job is" if facts.expired_jobs == 1 else "the leases of all jobs are"
        yield Blocker(
            code="leases_over", text=f"{leases} over", remedy="the next poll takes over; if that repeats, nodes die"
        )
    if facts.pinned_jobs:
        jobs = count_text(facts.pinned_jobs, "job")
        yield Blocker(
            code="pinned",
            text=f"{jobs} pinned to a worker or build that does not poll",
            remedy="start that node, or unpin the jobs",
        )
    if facts.capped:
        yield Blocker(
            code="capped",
            text="; ".join(facts.capped),
            remedy="wait until running jobs end, or raise the cap",
        )
    if facts.paused and facts.paused_blocks:
        due = count_text(facts.paused_blocks, "block")
        places = ((facts.paused_queues, "queue"), (facts.paused_jobs, "job"))
        within = " and ".join(count_text(count, noun) for count, noun in places if count)
        within = f" in {within}" if within else ""
        yield Blocker(
            code="paused",
            text=f"an operator holds {' and '.join(facts.paused)}, with {due} due{within}",
            remedy="resume the scope",
        )


def _set_aside(facts: Standstill) -> Iterator[Blocker]:
    """Yield the blockers of what is blocked on its own, independent of other work."""
    if facts.parked_jobs:
        keep = "it keeps" if facts.parked_jobs == 1 else "they keep"
        yield Blocker(
            code="parked",
            text=f"{count_text(facts.parked_jobs, 'job')} parked: {keep} {count_text(facts.parked_blocks, 'block')}",
            remedy="check the parked jobs: requeue them, return their blocks, or release them from quarantine",
            is_for_due_work=False,
        )
    if facts.failing_jobs:
        yield Blocker(
            code="jobs_fail",
            text=facts.failing_jobs,
            remedy="fix the cause in the error: availability of the object store, space in the scratch folders, memory",
            is_for_due_work=False,
        )
    if facts.slow_database:
        yield Blocker(
            code="database_slow",
            text=facts.slow_database,
            remedy="check the network between the processes and the database, and the load of its machine",
            is_for_due_work=False,
        )
    for blocker in facts.lane_blockers:
        yield Blocker(code=blocker.code, text=blocker.text, remedy=blocker.remedy, is_for_due_work=False)


def _counting(facts: Standstill) -> Iterator[Blocker]:
    if late := counting_late(facts.counted_ms_ago):
        yield Blocker(code="not_counting", text=late, remedy="start beat and a control worker")


def _database_blockers(facts: Standstill) -> Iterator[Blocker]:
    if facts.unsafe_database:
        yield Blocker(
            code="unsafe_database",
            text=f"no push is acknowledged: {facts.unsafe_database}",
            remedy="change the setting, then run `lithify check_deployment`",
        )
    if facts.log_behind:
        yield Blocker(
            code="log_behind",
            text=facts.log_behind,
            remedy="run `lithify fsck --repair`, unless another installation uses this bucket: then give one of them "
            "another OBJECT_STORE_URL",
        )


def _slow(facts: Standstill) -> Blocker:
    return Blocker(
        code="nothing_completes",
        text=f"{count_text(facts.leased_jobs, 'job')} running, and none was completed",
        remedy="check the attempts of the running jobs and the logs of the nodes",
    )


def _summary(facts: Standstill, blockers: Sequence[Blocker]) -> str:
    beside = "; ".join(blocker.text for blocker in blockers if not blocker.is_for_due_work)
    course = _course(facts, [blocker for blocker in blockers if blocker.is_for_due_work])
    return f"{course}; {beside}" if beside else course


def _course(facts: Standstill, blockers: Sequence[Blocker]) -> str:
    if facts.is_work_due:
        work = f"{count_text(facts.due_queues, 'queue')} ready, {count_text(facts.due_jobs, 'job')} not done"
        if facts.stalled_ms is not None and facts.stalled_ms > COUNTING_LATE_MS:
            work += f", nothing completed for {seconds_text(facts.stalled_ms / 1000)}"
        return f"{work}: {blockers[0].text}" if blockers else work
    if facts.paused_blocks:
        return blockers[0].text if blockers else f"{' and '.join(facts.paused)} paused"
    if facts.next_ready_in_ms is not None:
        return f"nothing is due; the next queue is ready in {seconds_text(facts.next_ready_in_ms / 1000)}"
    return "nothing is due"
