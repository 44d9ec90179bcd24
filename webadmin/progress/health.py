"""Says why nothing happens, or that all is well: blockers by name, the one that matters most first. Pure.

Unhealthy is only what somebody should look at now: work is due, nothing was completed for too long, and no operator
wants it so. A pause is an operator's wish: it is named, and it is no illness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.scheduling.progress import count_words, seconds_text
from webadmin.progress.facts import Standstill

COUNTING_LATE_MS = 3 * 60_000
"""Counting runs every 15 seconds: if it is away so long, beat or control is not running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One reason why work does not go on, and what ends it. ``code`` is stable."""

    code: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the schedule moves. ``blockers`` are named even while it is healthy."""

    is_healthy: bool
    summary: str
    blockers: Sequence[Blocker]
    paused: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return it as the progress check and the API show it."""
        return {
            "status": "ok" if self.is_healthy else "stalled",
            "summary": self.summary,
            "blocker": self.blockers[0].code if self.blockers else None,
            "blockers": [{"code": b.code, "text": b.text, "remedy": b.remedy} for b in self.blockers],
            "paused": list(self.paused),
        }


def judge(facts: Standstill, *, stalled_after_seconds: int) -> Health:
    """Say whether the schedule moves, and what holds it if not."""
    blockers = tuple(_blockers(facts))
    is_counting = facts.counted_ms_ago is not None and facts.counted_ms_ago <= COUNTING_LATE_MS
    is_stalled = facts.is_work_due and facts.stalled_ms is not None and facts.stalled_ms > stalled_after_seconds * 1000
    is_healthy = is_counting and not is_stalled and not facts.is_merging_broken
    if is_stalled and not blockers:
        blockers = (_slow(facts),)
    return Health(is_healthy=is_healthy, summary=_summary(facts, blockers), blockers=blockers, paused=facts.paused)


def _blockers(facts: Standstill) -> Iterator[Blocker]:
    for broken in facts.broken_builds:
        yield Blocker(
            code="merging_broken",
            text=broken,
            remedy="look at its jobs in the evictions register, then move the nodes to another build; bad blocks are "
            "not looked for meanwhile",
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
            text=f"{count_words(facts.polling_workers, 'worker')} polling, and none offers a free slot",
            remedy="look at the nodes' logs: a node that is not ready, rests after failures or cannot hear its broker "
            "offers nothing",
        )
    if facts.expired_jobs and facts.expired_jobs == facts.leased_jobs:
        leases = "the lease of the only running job is" if facts.expired_jobs == 1 else "the leases of all jobs are"
        yield Blocker(
            code="leases_over", text=f"{leases} over", remedy="the next poll takes over; if that repeats, nodes die"
        )
    if facts.pinned_jobs:
        jobs = count_words(facts.pinned_jobs, "job")
        yield Blocker(
            code="pinned",
            text=f"{jobs} may only go to a worker or build that does not poll",
            remedy="start that node, or unpin them",
        )
    if facts.capped:
        yield Blocker(
            code="capped",
            text="; ".join(facts.capped),
            remedy="wait for the end of its jobs, or raise the cap",
        )
    if facts.paused and facts.paused_blocks:
        due = count_words(facts.paused_blocks, "block")
        yield Blocker(
            code="paused",
            text=f"an operator holds {' and '.join(facts.paused)}, with {due} due",
            remedy="resume it",
        )
    if facts.counted_ms_ago is None or facts.counted_ms_ago > COUNTING_LATE_MS:
        since = "never" if facts.counted_ms_ago is None else f"{seconds_text(facts.counted_ms_ago / 1000)} ago"
        yield Blocker(
            code="not_counting", text=f"progress was last counted {since}", remedy="start beat and a control worker"
        )


def _slow(facts: Standstill) -> Blocker:
    return Blocker(
        code="nothing_completes",
        text=f"{count_words(facts.leased_jobs, 'job')} running, and none was completed",
        remedy="look at the attempts of the running jobs and at the nodes' logs",
    )


def _summary(facts: Standstill, blockers: Sequence[Blocker]) -> str:
    if facts.is_work_due:
        work = f"{count_words(facts.due_queues, 'queue')} ready, {count_words(facts.due_jobs, 'job')} not done"
        if facts.stalled_ms is not None and facts.stalled_ms > COUNTING_LATE_MS:
            work += f", nothing completed for {seconds_text(facts.stalled_ms / 1000)}"
        return f"{work}: {blockers[0].text}" if blockers else work
    if facts.paused_blocks:
        return blockers[0].text if blockers else f"{' and '.join(facts.paused)} held still"
    if facts.next_ready_in_ms is not None:
        return f"nothing is due; the next queue is ready in {seconds_text(facts.next_ready_in_ms / 1000)}"
    return "nothing is due"
