"""Choose the ready queues from which jobs are planned, before their blocks are read.

Uses the same fair shares as ``prepare``, applied to the sums that each queue keeps of its blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from engine.core.fast_dataclasses import fast_constructor, fast_init
from engine.schedule.fairness import Candidate, FairShare, LaneView, TenantView
from engine.schedule.priority import job_priority_ms

candidate = fast_constructor(Candidate)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSums:
    """A ready queue without its blocks: priority of its next job, estimated number of jobs and bytes per job."""

    id: int
    lane: str
    tenant: str
    priority_ms: int
    job_count: int
    job_bytes: int


def choose_queues(
    queues: Iterable[QueueSums],
    *,
    lanes: Iterable[LaneView],
    tenants: Iterable[TenantView],
    now_ms: int,
    job_max: int,
) -> dict[int, int]:
    """Return the number of jobs to plan from each queue, by queue id; at most ``job_max`` in total."""
    share = FairShare(lanes, tenants, [one for queue in queues for one in _candidates(queue, now_ms, job_max)])
    chosen: dict[int, int] = {}
    for taken in islice(share, max(0, job_max)):
        chosen[taken.work] = chosen.get(taken.work, 0) + 1
        share.charge(taken)
    return chosen


def _candidates(queue: QueueSums, now_ms: int, job_max: int) -> Iterator[Candidate[int]]:
    later_ms = job_priority_ms(ready_at_ms=now_ms, size_bytes=queue.job_bytes)
    for position in range(min(queue.job_count, job_max)):
        yield candidate(
            lane=queue.lane,
            tenant=queue.tenant,
            priority_ms=max(queue.priority_ms, later_ms) if position else queue.priority_ms,
            name=f"{queue.id:020}-{position:06}",
            size_bytes=queue.job_bytes,
            work=queue.id,
        )
