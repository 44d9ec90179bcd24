"""What must hold from one step of a history to the next, for every actor; numbers are those of the invariants.

``check_invariants`` looks at the tables as they are; this looks at what changed since its last call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from engine.schedule.model import JobState
from tests.webadmin.schedule.test_replay import assert_equal_to_tables, log, replayed
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.models import Block, BlockLineage
from webadmin.lanes.profiles.states import LIVE_STATES
from webadmin.progress.models import FlowTotal
from webadmin.progress.services.count_log import count_log
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Job, Limits, LogHead
from webadmin.schedule.register import parked_jobs


@dataclass
class BetweenSteps:
    """The tables after the step before: live blocks, and the token and end of each lease."""

    live: set[int] = field(default_factory=set)
    leases: dict[str, tuple[int, int]] = field(default_factory=dict)

    def check(self) -> None:
        """Compare the tables with those of the step before, and keep them for the next."""
        self._check_what_is_gone()
        self._check_leases()
        assert LogHead.objects.get().live_job_count <= Limits.objects.get().queue_max, "invariant 11"
        registered = {job.name: job.source_count for job in parked_jobs()}
        held = Block.objects.filter(owner_job__state=JobState.PARKED, state__in=LIVE_STATES)
        assert registered == Counter(held.values_list("owner_job__name", flat=True)), "invariant 13"

    def _check_what_is_gone(self) -> None:
        """Invariants 2, 4 and 5: a block goes by a merge only, in the command that brings all results of it."""
        live = set(Block.objects.filter(state__in=LIVE_STATES).values_list("id", flat=True))
        gone, self.live = self.live - live, live
        if gone:
            pairs = BlockLineage.objects.filter(source__in=gone).values_list(
                "source", "source__removed_command_index", "result__added_command_index", "job__finished_command_index"
            )
            assert {pair[0] for pair in pairs} == gone, "invariant 4"
            assert all(removed == added == finished for _, removed, added, finished in pairs), "invariants 2 and 5"

    def _check_leases(self) -> None:
        """Invariant 8: a lease grows or ends; somebody else gets the job only when it is past."""
        now_ms = LogHead.objects.get().command_time_ms
        rows = Job.objects.filter(state=JobState.LEASED).values_list("name", "token", "lease_expires_ms")
        leases = {name: (token, expires_ms) for name, token, expires_ms in rows}
        for name in leases.keys() & self.leases.keys():
            token, expires_ms = leases[name]
            token_before, expired_ms = self.leases[name]
            assert expires_ms >= expired_ms if token == token_before else now_ms > expired_ms, "invariant 8"
        self.leases = leases


@contextmanager
def watched_poll(capacity: int, named: set[str]) -> Iterator[None]:
    """Check what a poll made inside gave out (invariants 9, 15 and 24); ``named`` are the jobs that it reports."""
    now_ms, jobs_before = read_time().now_ms, {job.id: job for job in Job.objects.exclude(state=JobState.DONE)}
    last_index = LogHead.objects.get().last_index
    aged = {block.id for block in _aged_blocks(now_ms)}
    yield
    jobs = {job.id: job for job in Job.objects.exclude(state=JobState.DONE)}
    given = {job.id for job in jobs.values() if job.state == JobState.LEASED and job.token > last_index}
    created = jobs.keys() - jobs_before.keys()
    assert len(created) <= len(given) <= capacity, "invariant 24"
    left = {job.id for job in jobs.values() if _was_free(jobs_before.get(job.id), job, named, now_ms)} - given
    for tenant in {jobs_before[job_id].tenant for job_id in left}:
        first_left = min(_place(jobs_before[job_id]) for job_id in left if jobs_before[job_id].tenant == tenant)
        places = [_place(jobs_before[job_id]) for job_id in given - created if jobs_before[job_id].tenant == tenant]
        assert all(place < first_left for place in places), "invariant 9"
    if len(given) < capacity:
        assert not left, "invariant 9: somebody waits for nothing"
        live_count, queue_max = LogHead.objects.get().live_job_count, Limits.objects.get().queue_max
        waiting = {block.id for block in _aged_blocks(now_ms)} & aged
        # A queue whose blocks were created far apart makes several jobs, of which one poll may plan the first.
        assert created or not waiting or live_count >= queue_max, "invariant 15"


def _was_free(before: Job | None, after: Job, named: set[str], now_ms: int) -> bool:
    """Say whether a job could have been given out all the time."""
    if before is None or before.name in named or after.state != before.state:
        return False
    if before.state != JobState.LEASED:
        return before.state == JobState.WAITING
    has_runs = before.failures < Limits.objects.get().failures_max
    return has_runs and after.lease_expires_ms is not None and after.lease_expires_ms < now_ms


def _place(job: Job) -> tuple[int, str]:
    return (job.priority_ms, job.name)


def _aged_blocks(now_ms: int) -> list[Block]:
    """Return the queued blocks that have waited longer than their level lets them."""
    ages = dict(LevelPolicy.objects.filter(tenant="").values_list("level", "age_seconds"))
    queued = Block.objects.filter(state="queued").only("id", "level", "arrived_at_ms")
    return [block for block in queued if now_ms > block.arrived_at_ms + ages[block.level] * 1000]


def check_history() -> None:
    """Invariants 16, 23 and 26: the log alone leads to the tables, and what is counted from it adds up."""
    entries = log()
    state = replayed(entries)
    assert_equal_to_tables(state)
    assert replayed(entries, times=2) == state, "invariant 16"
    count_log()
    totals: Counter[tuple[int, str]] = Counter()
    for row in FlowTotal.objects.all():
        totals[row.level, row.name] += row.count
    for level in range(3):
        there = Job.objects.filter(level=level).exclude(state=JobState.DONE).count()
        assert totals[level, "jobs_added"] == totals[level, "jobs_completed"] + there, "invariant 26"
        assert totals[level, "jobs_evicted"] >= Job.objects.filter(level=level, state=JobState.PARKED).count()


def rows_of_others(tenant: str) -> list[dict[str, Any]]:
    """Return the jobs of all other tenants."""
    return list(Job.objects.exclude(tenant=tenant).order_by("id").values())
