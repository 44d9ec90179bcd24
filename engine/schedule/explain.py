"""Explain the state of a block or job: the state, its reason, and what changes it. No I/O.

A block is queued, owned by one job, parked with a reason, replaced or final. Every explanation names what changes the
state, unless nothing does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.schedule.model import JobState, ParkedKind
from engine.schedule.progress import count_text, seconds_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A state with its reason; ``next`` names what changes the state ("" if nothing does)."""

    subject: str
    state: str
    why: str
    next: str = ""

    @property
    def sentence(self) -> str:
        """Return the explanation as one sentence."""
        return f"{self.subject} is {self.state}: {self.why}{f'; {self.next}' if self.next else ''}."

    def to_json(self) -> dict[str, str]:
        """Return the form used by the API and the command line."""
        return {
            "subject": self.subject,
            "state": self.state,
            "why": self.why,
            "next": self.next,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """The queue of a queued block. Times are command time, milliseconds.

    ``blocks_max`` is the number of blocks of a full job (None: the level has no policy). A queue with fewer bytes than
    ``partial_batch_bytes`` may be merged with those of other shards. ``capped`` names the cap that its jobs have
    reached, "" if none.
    """

    name: str
    now_ms: int
    block_count: int
    byte_count: int
    ready_at_ms: int
    blocks_max: int | None
    partial_batch_bytes: int = 0
    paused: Sequence[str] = ()
    is_schedule_full: bool = False
    polling_workers: int = 0
    capped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """The state of a job. Times are command time, milliseconds.

    ``last_error`` is the error of its last failed attempt. ``capped`` names the cap that is reached, ``pinned`` the
    node that the job is pinned to and that does not poll; "" if none. ``shard_count`` is the number of shards of its
    sources. A rewrite removes deleted data from one block.
    """

    name: str
    state: JobState
    now_ms: int
    lease_expires_ms: int = 0
    finished_at_ms: int | None = None
    worker: str = ""
    source_count: int = 0
    shard_count: int = 1
    is_rewrite: bool = False
    failures: int = 0
    failures_max: int = 0
    parked_kind: str = ""
    parked_reason: str = ""
    last_error: str = ""
    result_ids: Sequence[str] = ()
    paused: Sequence[str] = ()
    polling_workers: int = 0
    capped: str = ""
    pinned: str = ""


def explain_queued(subject: str, queue: QueueFacts) -> Explanation:
    """Explain a queued block."""
    if queue.blocks_max is None:
        return _queued(
            subject,
            f"it waits in {queue.name}, and no level policy is configured",
            "it is planned after a policy is configured",
        )
    held = f"it waits in {queue.name} with {queue.block_count} of {queue.blocks_max} blocks"
    if queue.byte_count < queue.partial_batch_bytes and queue.block_count < queue.blocks_max:
        held += ", few enough to be merged with those of the tenant's other shards"
    if queue.paused:
        return _queued(subject, f"{held}, and {_paused(queue.paused)}", "it is planned after the pause ends")
    wait_ms = queue.ready_at_ms - queue.now_ms
    if wait_ms > 0:
        left = queue.blocks_max - queue.block_count
        more = f"{left} more {'block' if left == 1 else 'blocks'} or " if left > 0 else ""
        return _queued(subject, held, f"{more}{_after(wait_ms)} complete a job")
    why = f"{held}, ready to be planned since {_span(-wait_ms)}"
    if queue.is_schedule_full:
        return _queued(subject, f"{why}, but the schedule is full", "it is planned when a job completes or is parked")
    if not queue.polling_workers:
        return _queued(subject, f"{why}, but no worker polls", "it is planned after a node is started")
    if queue.capped:
        return _queued(subject, f"{why}, but {queue.capped}", "it is planned when a job ends or the cap is raised")
    return _queued(subject, why, "the next poll with free capacity assigns it in schedule order")


def explain_outdated(subject: str, queue: QueueFacts) -> Explanation:
    """Explain a queued block that is past the retention of its tenants."""
    why = f"it waits in {queue.name}, is past the retention of its tenants, and is not merged any more"
    return _queued(subject, why, "the next retention run drops it; a longer retention or a hold keeps it")


def explain_owned(subject: str, job: JobFacts) -> Explanation:
    """Explain a block that is a source of a job, by the state of the job."""
    about = explain_job(job)
    return Explanation(
        subject=subject,
        state="parked" if job.state is JobState.PARKED else "owned",
        why=f"it is {_one_of(job.source_count)} of job {job.name}, which is {about.state} ({about.why})",
        next=about.next,
    )


def explain_quarantined(subject: str, *, cause: str, reason: str, attempts: int, since_ms: int) -> Explanation:
    """Explain a quarantined block, damaged or missing. ``since_ms`` is the time since its quarantine."""
    readers = "queries skip it" if cause == "missing" else "queries read the parts that are readable"
    return Explanation(
        subject=subject,
        state="in quarantine",
        why=f"it was found {cause} {_span(since_ms)} ago after {count_text(attempts, 'attempt')} alone ({reason})",
        next=f"{readers}, and releasing it after a repair retries it",
    )


def explain_parked_block(subject: str, reason: str) -> Explanation:
    """Explain a block that is excluded from compaction and has no job."""
    return Explanation(
        subject=subject,
        state="parked",
        why=reason,
        next="queries still read it; an operator's action returns it to its queue",
    )


def explain_final(subject: str, level: int) -> Explanation:
    """Explain a block of the highest level."""
    return Explanation(subject=subject, state="final", why=f"level {level} is the highest level", next="")


def explain_replaced(
    subject: str, *, job: str, result_ids: Sequence[str], deletes_in_ms: int | None, is_deleted: bool
) -> Explanation:
    """Explain a replaced block. ``deletes_in_ms`` is the time until its object is deleted (None: no tombstone)."""
    into = f"into {_listed(result_ids)}" if result_ids else "without a remaining result"
    why = f"job {job} merged it {into}" if job else f"it was replaced {into}"
    if is_deleted:
        return Explanation(subject=subject, state="deleted", why=f"{why}, and its object is deleted")
    if deletes_in_ms is None:
        return Explanation(subject=subject, state="replaced", why=why)
    when = f"{_after(deletes_in_ms)}" if deletes_in_ms > 0 else "with the next run of the control task"
    return Explanation(subject=subject, state="replaced", why=why, next=f"its object is deleted {when}")


def explain_job(job: JobFacts) -> Explanation:
    """Explain a job."""
    plain = _explain_state(job)
    if job.is_rewrite:
        return replace(plain, why=f"it rewrites a block without its deleted data; {plain.why}")
    if job.shard_count > 1:
        return replace(plain, why=f"it merges partial batches of {job.shard_count} shards of the tenant; {plain.why}")
    return plain


def _explain_state(job: JobFacts) -> Explanation:
    subject = f"Job {job.name}"
    failed = _failed(job)
    if job.state is JobState.LEASED:
        return _explain_leased(subject, job, failed)
    if job.state is JobState.PARKED:
        return _explain_parked_job(subject, job)
    if job.state is JobState.WAITING:
        if job.paused:
            return Explanation(
                subject=subject,
                state="waiting",
                why=f"{_paused(job.paused)}{failed}",
                next="it is assigned after the pause ends",
            )
        if job.pinned:
            why = f"it is pinned to {job.pinned}{failed}"
            return Explanation(
                subject=subject,
                state="waiting",
                why=why,
                next="it is assigned when such a worker polls or the job is unpinned",
            )
        if job.polling_workers and job.capped:
            then = "it is assigned when a job ends or the cap is raised"
            return Explanation(subject=subject, state="waiting", why=f"{job.capped}{failed}", next=then)
        then = (
            "the next poll with free capacity assigns it in schedule order"
            if job.polling_workers
            else "it is assigned after a node is started"
        )
        why = "no worker holds it" if job.polling_workers else "no worker polls"
        return Explanation(subject=subject, state="waiting", why=f"{why}{failed}", next=then)
    if job.state is JobState.BLOCKED:
        why = f"it waits for other jobs{failed}"
        return Explanation(subject=subject, state="blocked", why=why, next="it is scheduled after they end")
    ago = "" if job.finished_at_ms is None else f" {_span(job.now_ms - job.finished_at_ms)} ago"
    if job.state is JobState.DONE:
        into = _listed(job.result_ids) or "nothing"
        return Explanation(subject=subject, state="done", why=f"{into} replaced its {job.source_count} sources{ago}")
    return Explanation(subject=subject, state=job.state.value, why=f"its blocks returned to queues or other jobs{ago}")


def _explain_leased(subject: str, job: JobFacts, failed: str) -> Explanation:
    left_ms = job.lease_expires_ms - job.now_ms
    if left_ms >= 0:
        return Explanation(
            subject=subject,
            state="leased",
            why=f"worker {job.worker} runs it and must renew within {_span(left_ms)}{failed}",
            next="its report ends the run; without a renewal the job goes to another worker",
        )
    why = f"worker {job.worker} held it and its lease expired {_span(-left_ms)} ago{failed}"
    if 0 < job.failures_max <= job.failures:
        return Explanation(subject=subject, state="leased", why=why, next="the next poll parks it")
    then = "the next poll reassigns it" if job.polling_workers else "it is reassigned after a node is started"
    return Explanation(subject=subject, state="leased", why=why, next=then)


def _explain_parked_job(subject: str, job: JobFacts) -> Explanation:
    kind = job.parked_kind or ParkedKind.EVICTED.value
    then = "requeueing it retries it; returning its blocks to their queues plans them again"
    if kind == ParkedKind.QUARANTINED.value:
        then = "releasing its block from quarantine retries it"
    return Explanation(subject=subject, state=f"parked ({kind})", why=job.parked_reason.rstrip("."), next=then)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """Jobs and blocks of a tenant, a table or a repository.

    ``waits`` holds phrases for data not planned yet, ``excluded`` for data that is not planned until an operator acts;
    ``stuck`` is the reason why nothing is planned, "" if none.
    """

    running_jobs: int = 0
    waiting_jobs: int = 0
    parked_jobs: int = 0
    queued_blocks: int = 0
    due_blocks: int = 0
    waits: Sequence[str] = ()
    excluded: Sequence[str] = ()
    paused: Sequence[str] = ()
    stuck: str = ""
    polling_workers: int = 0


def explain_place(subject: str, place: PlaceFacts) -> Explanation:
    """Explain a tenant, a table or a repository as a whole."""
    due = f" ({place.due_blocks} of them due)" if place.due_blocks else ""
    parts = (
        (place.running_jobs, f"{count_text(place.running_jobs, 'job')} running"),
        (place.waiting_jobs, f"{count_text(place.waiting_jobs, 'job')} waiting"),
        (place.queued_blocks, f"{count_text(place.queued_blocks, 'block')} in queues{due}"),
        *((1, phrase) for phrase in (*place.waits, *place.excluded)),
        (place.parked_jobs, f"{count_text(place.parked_jobs, 'job')} parked"),
    )
    there = ", ".join(text for count, text in parts if count) or "no jobs and no queued blocks"
    has_work = bool(place.waiting_jobs or place.queued_blocks or place.waits)
    if place.stuck:
        return Explanation(subject=subject, state="not planned", why=f"{place.stuck}: {there}")
    if place.paused:
        then = "it is planned and assigned after the pause ends"
        return Explanation(subject=subject, state="paused", why=f"{_paused(place.paused)}: {there}", next=then)
    if place.excluded:
        then = "repair the cause, then release what is quarantined and plan what is stuck"
        return Explanation(subject=subject, state="in need of attention", why=there, next=then)
    parked = (
        "requeueing the parked jobs, or returning their blocks to queues, retries them" if place.parked_jobs else ""
    )
    if place.running_jobs:
        return Explanation(subject=subject, state="being compacted", why=there, next=parked)
    if place.waiting_jobs or place.due_blocks:
        then = (
            "the next poll with free capacity assigns it in schedule order"
            if place.polling_workers
            else "it is assigned after a node is started"
        )
        return Explanation(subject=subject, state="waiting", why=there, next=then)
    if has_work:
        then = "more data or time makes it due"
        return Explanation(subject=subject, state="waiting", why=there, next=then)
    return Explanation(subject=subject, state="parked" if parked else "compacted", why=there, next=parked)


def explain_held_back(subject: str, paused: Sequence[str], why: str) -> Explanation:
    """Explain a block that is not planned because its lane is paused."""
    return Explanation(
        subject=subject, state="waiting", why=f"{_paused(paused)}; {why}", next="it is planned after the pause ends"
    )


def _queued(subject: str, why: str, then: str) -> Explanation:
    return Explanation(subject=subject, state="queued", why=why, next=then)


def _failed(job: JobFacts) -> str:
    if not job.failures:
        return ""
    times = "once" if job.failures == 1 else f"{job.failures} times"
    of = f" of {job.failures_max} allowed" if job.failures_max else ""
    return f", having failed {times}{of}{f' (last: {job.last_error})' if job.last_error else ''}"


def _paused(scopes: Sequence[str]) -> str:
    return f"an operator paused {' and '.join(scopes)}"


def _one_of(source_count: int) -> str:
    return "the only source" if source_count == 1 else f"one of {source_count} sources"


def _listed(ids: Sequence[str]) -> str:
    if len(ids) <= 2:
        return " and ".join(ids)
    return f"{ids[0]} and {len(ids) - 1} others"


def _span(ms: int) -> str:
    return seconds_text(max(ms, 0) / 1000)


def _after(ms: int) -> str:
    return f"in {seconds_text(max(ms, 1000) / 1000)}"
