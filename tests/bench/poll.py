"""Cost of a poll that plans and assigns 8 jobs, on PostgreSQL, with 1,000 jobs leased to other workers.

Estimate: such a poll assigns 80 to 160 blocks, a row update each with seven index entries, which is 2 to 3 ms of server
time; statements that read by index cost 0.1 ms each, and their round trips and Python's share as much again. None of
that depends on the size of the backlog.

One poller is measured at both backlogs; the large one takes most of a minute to create. Its jobs are returned outside
of the measured time, so that the backlog is constant. Then 16 pollers in two processes (as two web workers with eight
threads each) call the service function continuously: once renewing 8 leases without capacity for more, as a busy fleet
does, and once leasing 8 new jobs per poll.
"""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.bench.backlog import Backlog, schedule_database
from tests.bench.figures import Figures

NAME = "poll"
SMALL, LARGE = 10_000, 1_000_000
SCHEDULED, CAPACITY = 1000, 8
POLLS, POLLS_FULL, POLLS_BEFORE = 200, 1000, 20
POLLS_PER_RESTORE = 10
BLOCKS_PER_JOB = 11
"""Approximate blocks of a job in the mixture of segments and first results."""
POLLERS, PROCESSES = 16, 2
SECONDS, SECONDS_FULL = 5.0, 20.0
START_SECONDS = 4.0
"""Time after which all pollers have started and polled a few times."""


@dataclass(slots=True)
class HeadWatch:
    """Measures the time from the first write under the head's row lock to the end of the commit.

    It watches this thread's connection. Between the lock and that write there is one query of the server's time.
    """

    held_ms: list[float] = field(default_factory=list)
    statements: int = 0
    _is_locked: bool = False
    _since: float | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        from django.db import connection

        connection.ensure_connection()
        commit = connection._commit
        connection._commit = lambda: self._note(commit)
        try:
            with connection.execute_wrapper(self._execute):
                yield
        finally:
            del connection._commit

    def _execute(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.statements += 1
        if sql.endswith('"schedule_loghead" FOR NO KEY UPDATE'):
            self._is_locked = True
        elif self._is_locked and self._since is None and sql.startswith(("INSERT", "UPDATE")):
            self._since = time.perf_counter()
        return execute(sql, params, many, context)

    def _note(self, commit: Any) -> None:
        commit()
        if self._since is not None:
            self.held_ms.append((time.perf_counter() - self._since) * 1000)
        self._is_locked, self._since = False, None


def run(full: bool) -> Figures:
    """Measure at the small backlog, grow it, measure again, then with all pollers."""
    polls, seconds = (POLLS_FULL, SECONDS_FULL) if full else (POLLS, SECONDS)
    with schedule_database():
        backlog = Backlog()
        backlog.grow(SMALL + SCHEDULED * BLOCKS_PER_JOB - backlog.block_count)
        _schedule(SCHEDULED)
        small = _one_poller(polls)
        queued = _queued()
        backlog.grow(LARGE - queued)
        large = _one_poller(polls)
        queries = large.statements / (polls + POLLS_BEFORE)
        busy = _many_pollers(seconds, is_taking=False)
        taking = _many_pollers(seconds, is_taking=True)
    return Figures(
        parameters={
            "blocks_small": queued,
            "blocks_large": LARGE,
            "jobs_scheduled": SCHEDULED,
            "capacity": CAPACITY,
            "polls": polls,
            "pollers": POLLERS,
            "poller_processes": PROCESSES,
        },
        figures={
            "p50_ms_10k": _share(small.milliseconds, 0.5),
            "p99_ms_10k": _share(small.milliseconds, 0.99),
            "p50_ms_1m": _share(large.milliseconds, 0.5),
            "p99_ms_1m": _share(large.milliseconds, 0.99),
            "growth": _share(large.milliseconds, 0.99) / _share(small.milliseconds, 0.99),
            "queries_per_poll": queries,
            "polls_per_s": busy.rate,
            "head_held_p99_ms": _share(large.held_ms, 0.99),
            "taking_polls_per_s": taking.rate,
            "taking_head_held_p50_ms": _share(taking.held_ms, 0.5),
            "taking_head_held_p99_ms": _share(taking.held_ms, 0.99),
        },
    )


@dataclass(slots=True, kw_only=True)
class OnePoller:
    """Results of the single poller."""

    milliseconds: list[float]
    held_ms: list[float]
    statements: int


def _one_poller(polls: int) -> OnePoller:
    """Poll repeatedly for 8 jobs."""
    from engine.protocol.messages import PollRequest

    credential = credential_of("single")
    request = PollRequest(worker="single", build="bench", capacity=CAPACITY)
    milliseconds: list[float] = []
    watch = HeadWatch()
    taken: list[str] = []
    for number in range(polls + POLLS_BEFORE):
        with watch.watching():
            started = time.perf_counter()
            jobs = _poll(request, credential)
            milliseconds.append((time.perf_counter() - started) * 1000)
        assert len(jobs) == CAPACITY, "a poll that gets no jobs measures something else"
        taken += jobs
        if number % POLLS_PER_RESTORE == POLLS_PER_RESTORE - 1:
            _give_back(taken)
            taken = []
    return OnePoller(
        milliseconds=milliseconds[POLLS_BEFORE:], held_ms=watch.held_ms[POLLS_BEFORE:], statements=watch.statements
    )


@dataclass(slots=True, kw_only=True)
class ManyPollers:
    """Results of all pollers together."""

    rate: float
    held_ms: list[float]


def _many_pollers(seconds: float, *, is_taking: bool) -> ManyPollers:
    """Run all pollers for ``seconds``; return polls per second, and how long each held the head's lock."""
    begin = time.monotonic() + START_SECONDS
    for number in range(POLLERS):
        credential_of(f"poller-{number}")
    names = [[f"poller-{number}" for number in range(POLLERS) if number % PROCESSES == n] for n in range(PROCESSES)]
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), initializer=join_in) as processes:
        running = [processes.submit(_poll_all, own, begin, seconds, is_taking) for own in names]
        done = [one for process in running for one in process.result()]
    return ManyPollers(
        rate=sum(polls for polls, _ in done) / seconds, held_ms=[held for _, own in done for held in own]
    )


def _poll_all(workers: Sequence[str], begin: float, seconds: float, is_taking: bool) -> list[tuple[int, list[float]]]:
    """Run a thread per worker in this process."""
    with ThreadPoolExecutor(len(workers)) as threads:
        return list(threads.map(lambda worker: _poll_until(worker, begin, seconds, is_taking), workers))


def _poll_until(worker: str, begin: float, seconds: float, is_taking: bool) -> tuple[int, list[float]]:
    """Poll until the end; return the polls in the measured time, and how long each held the head's lock."""
    from django.db import connection

    from engine.protocol.messages import JobUpdate, PollRequest, UpdateStatus
    from webadmin.schedule.services import poll

    credential = credential_of(worker)
    first = PollRequest(worker=worker, build="bench", capacity=CAPACITY)
    answer = poll(request=first, credential=credential, at=now())
    renewal = PollRequest(
        worker=worker,
        build="bench",
        capacity=0,
        updates=tuple(
            JobUpdate(job=given.job, token=given.token, status=UpdateStatus.IN_PROGRESS) for given in answer.assignments
        ),
    )
    request = first if is_taking else renewal
    watch, count = HeadWatch(), 0
    with watch.watching():
        while (moment := time.monotonic()) < begin + seconds:
            answer = poll(request=request, credential=credential, at=now())
            assert len(answer.assignments if is_taking else answer.leases) == CAPACITY
            if moment < begin:
                watch.held_ms.clear()
            else:
                count += 1
    connection.close()
    return count, watch.held_ms


def _schedule(job_count: int) -> None:
    """Lease ``job_count`` jobs to workers that do not poll again."""
    from django.db import connection

    from engine.protocol.messages import PollRequest

    credential, left, number = credential_of("others"), job_count, 0
    while left > 0:
        number += 1
        request = PollRequest(worker=f"other-{number}", build="bench", capacity=min(left, 50))
        left -= len(_poll(request, credential))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # As autovacuum does within a minute.


def _poll(request: Any, credential: Any) -> list[str]:
    """Poll and return the names of the assigned jobs."""
    from webadmin.schedule.services import poll

    return [given.job for given in poll(request=request, credential=credential, at=now()).assignments]


def _give_back(jobs: Sequence[str]) -> None:
    """Return the blocks of these jobs to their queues by operator actions."""
    from webadmin.base.actions.action import ActionContext
    from webadmin.schedule.register import JobFilter
    from webadmin.schedule.services.cancel_jobs import cancel
    from webadmin.schedule.services.return_job_blocks import return_job_blocks

    for action in (cancel, return_job_blocks):
        outcome = action(JobFilter(names=tuple(jobs)), context=ActionContext(actor="bench"))
        assert len(outcome.changed) == len(jobs), outcome.left


def credential_of(name: str) -> Any:
    from webadmin.base.access.models import WorkerCredential
    from webadmin.base.access.services import issue_worker_credential

    known = WorkerCredential.objects.filter(name=name).first()
    return known or issue_worker_credential(name=name, actor="bench").credential


def _queued() -> int:
    from webadmin.lanes.profiles.models import Block
    from webadmin.lanes.profiles.states import BlockState

    return Block.objects.filter(state=BlockState.QUEUED).count()


def now() -> Any:
    from django.utils import timezone

    return timezone.now()


def join_in() -> None:
    """Set up Django in this process; the environment has the database URL."""
    importlib.import_module("webadmin.wsgi")


def _share(values: Sequence[float], share: float) -> float:
    """Return the quantile of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
