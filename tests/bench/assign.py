"""Jobs per second of an ideal fleet: 8 workers, each reports 8 finished jobs and leases 8 new ones per poll.

Estimate: a job of ten blocks is fifty rows written twice: leased, replaced, tombstones, lineage, results with their
datasets and ledger entries. At 500 jobs per second PostgreSQL writes 25,000 rows per second.

Eight threads in two processes call the service function. Results are built between polls, as workers do, and their time
is included.
"""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from tests.bench.backlog import Backlog, schedule_database
from tests.bench.figures import Figures
from tests.bench.poll import CAPACITY, PROCESSES, START_SECONDS, credential_of, join_in, now

NAME = "assign"
BLOCKS, BLOCKS_FULL = 100_000, 400_000
POLLERS = 8
SECONDS, SECONDS_FULL = 8.0, 30.0


def run(full: bool) -> Figures:
    """Run all pollers for a fixed time; count the jobs whose completion was accepted."""
    blocks, seconds = (BLOCKS_FULL, SECONDS_FULL) if full else (BLOCKS, SECONDS)
    with schedule_database():
        Backlog().grow(blocks)
        names = [f"poller-{number}" for number in range(POLLERS)]
        for name in names:
            credential_of(name)
        begin = time.monotonic() + START_SECONDS
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), initializer=join_in) as processes:
            shares = [names[n::PROCESSES] for n in range(PROCESSES)]
            running = [processes.submit(_work_all, own, begin, seconds) for own in shares]
            _look_at_the_jobs(begin)
            done = sum(process.result() for process in running)
        jobs = _check(done)
    return Figures(
        parameters={"pollers": POLLERS, "poller_processes": PROCESSES, "capacity": CAPACITY, "jobs_done": jobs},
        figures={"jobs_per_s": done / seconds},
    )


def _look_at_the_jobs(at: float) -> None:
    """Run ANALYZE, as autovacuum does within a minute: the plans are for a table without jobs."""
    from django.db import connection

    time.sleep(max(0.0, at - time.monotonic()))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _work_all(workers: Sequence[str], begin: float, seconds: float) -> int:
    with ThreadPoolExecutor(len(workers)) as threads:
        return sum(threads.map(lambda worker: _work(worker, begin, seconds), workers))


def _work(worker: str, begin: float, seconds: float) -> int:
    """Complete the jobs of the last poll and lease as many again; return the jobs completed within the time."""
    from django.db import connection

    from engine.protocol.messages import PollRequest
    from webadmin.schedule.services import poll

    credential, given, completed = credential_of(worker), (), 0
    while time.monotonic() < begin + seconds:
        request = PollRequest(worker=worker, build="bench", capacity=CAPACITY, updates=tuple(map(_success, given)))
        answer = poll(request=request, credential=credential, at=now())
        ended = time.monotonic()
        if begin <= ended < begin + seconds:
            completed += len(given)
        given = answer.assignments
        assert given, "the backlog has run out"
    connection.close()
    return completed


def _success(given: Any) -> Any:
    """Return the result that a merge of this job would report."""
    from engine.lanes.profiles.jobs import ProfileMergeSpec
    from engine.protocol.messages import JobUpdate, UpdateStatus
    from tests.block_factory import merged_from

    spec = ProfileMergeSpec.from_json(given.spec)
    # The blocks are copies, but each has its own id, from which the ids of results are derived.
    sources = [dataclasses.replace(_decoded(source.metadata), id=source.id) for source in spec.sources]
    result = merged_from(spec, sources)
    return JobUpdate(job=given.job, token=given.token, status=UpdateStatus.SUCCESS, result=result.to_json())


@functools.lru_cache(maxsize=1000)
def _decoded(metadata: bytes) -> Any:
    from engine.formats.profile_block.container.metadata import decode_metadata

    return decode_metadata(metadata)


def _check(done: int) -> int:
    """Return how many jobs are done; every counted one must be."""
    from engine.schedule.model import JobState
    from webadmin.schedule.models import Attempt, Job

    jobs = Job.objects.filter(state=JobState.DONE).count()
    refused = Attempt.objects.filter(outcome="refused").count()
    assert jobs >= done, f"{jobs} jobs are done, {done} were counted"
    assert not refused, f"{refused} results were refused"
    return jobs
