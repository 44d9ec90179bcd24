"""Says in one sentence where a block or job is, why, and what would change it. Pure: facts in, words out.

Nothing is ever in limbo: a block is queued, owned by one job, parked with a reason, replaced or final. Each of these
has a sentence of its own here, and it never ends without what would change the state, unless nothing would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.schedule.model import JobState, ParkedKind
from engine.schedule.progress import count_words, seconds_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The state in a word, and the sentence; ``next`` alone says what would change the state ("" if nothing would)."""

    subject: str
    state: str
    why: str
    next: str = ""

    @property
    def sentence(self) -> str:
        """Return the whole in one sentence."""
        return f"{self.subject} is {self.state}: {self.why}{f'; {self.next}' if self.next else ''}."

    def to_json(self) -> dict[str, str]:
        """Return it as API and command show it."""
        return {
            "subject": self.subject,
            "state": self.state,
            "why": self.why,
            "next": self.next,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What a queued block's queue holds. Times are command time, milliseconds.

    ``blocks_max`` is how many blocks make a job (None: the level has no policy); fewer bytes than ``remnant_bytes`` may
    join those of other shards. ``capped`` names the cap that keeps its jobs from running, "" if none does.
    """

    name: str
    now_ms: int
    block_count: int
    byte_count: int
    ready_at_ms: int
    blocks_max: int | None
    remnant_bytes: int = 0
    paused: Sequence[str] = ()
    is_schedule_full: bool = False
    polling_workers: int = 0
    capped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is known of a job. ``last_error`` is that of its last attempt that ended badly; times are command time.
    ``capped`` says which cap is reached, ``pinned`` who alone may take it and does not poll, "" if nothing of that is.
    ``shard_count`` is how many shards its sources are from; a rewrite leaves deleted data out of one block."""

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
    """Explain a block that waits in its queue."""
    if queue.blocks_max is None:
        return _queued(subject, f"it waits in {queue.name}, whose level has no policy", "a policy for that level does")
    held = f"it waits in {queue.name} with {queue.block_count} of {queue.blocks_max} blocks"
    if queue.byte_count < queue.remnant_bytes and queue.block_count < queue.blocks_max:
        held += ", few enough to go into one job with those of the tenant's other shards"
    if queue.paused:
        return _queued(subject, f"{held}, and {_paused(queue.paused)}", "resuming that lets it be planned")
    wait_ms = queue.ready_at_ms - queue.now_ms
    if wait_ms > 0:
        left = queue.blocks_max - queue.block_count
        more = f"{left} more {'block' if left == 1 else 'blocks'} or " if left > 0 else ""
        return _queued(subject, held, f"{more}{_after(wait_ms)} make a job of it")
    why = f"{held}, and a job could be made of them since {_span(-wait_ms)}"
    if queue.is_schedule_full:
        return _queued(subject, f"{why}, but the schedule is full", "a finished or parked job makes room")
    if not queue.polling_workers:
        return _queued(subject, f"{why}, but no worker polls", "starting a node lets it be planned")
    if queue.capped:
        return _queued(subject, f"{why}, but {queue.capped}", "the end of one of its jobs, or a higher cap, makes room")
    return _queued(subject, why, "the next poll with free capacity takes it, in its turn")


def explain_outdated(subject: str, queue: QueueFacts) -> Explanation:
    """Explain a queued block that is older than its tenant keeps data."""
    why = f"it waits in {queue.name}, is older than its tenants keep data, and so is not merged any more"
    return _queued(subject, why, "the next run of retention drops it, a longer rule or a hold keeps it")


def explain_owned(subject: str, job: JobFacts) -> Explanation:
    """Explain a block that is a source of a job: its fate is the job's."""
    about = explain_job(job)
    return Explanation(
        subject=subject,
        state="parked" if job.state is JobState.PARKED else "owned",
        why=f"it is {_one_of(job.source_count)} of job {job.name}, which is {about.state} ({about.why})",
        next=about.next,
    )


def explain_quarantined(subject: str, *, cause: str, reason: str, attempts: int, since_ms: int) -> Explanation:
    """Explain a block that was found to be damaged or missing. ``since_ms`` is how long ago."""
    readers = "queries go without it" if cause == "missing" else "queries read of it what can be read"
    return Explanation(
        subject=subject,
        state="in quarantine",
        why=f"it was found {cause} {_span(since_ms)} ago after {count_words(attempts, 'attempt')} alone ({reason})",
        next=f"{readers}, and releasing it lets it be tried again once it is mended",
    )


def explain_parked_block(subject: str, reason: str) -> Explanation:
    """Explain a block that is kept out of compaction without a job."""
    return Explanation(
        subject=subject,
        state="parked",
        why=reason,
        next="queries still read it, and an operator's order returns it to its queue",
    )


def explain_final(subject: str, level: int) -> Explanation:
    """Explain a block of the highest level."""
    return Explanation(
        subject=subject, state="final", why=f"level {level} is the highest, so it is merged no further", next=""
    )


def explain_replaced(
    subject: str, *, job: str, result_ids: Sequence[str], deletes_in_ms: int | None, is_deleted: bool
) -> Explanation:
    """Explain a block that was merged. ``deletes_in_ms`` counts to the deletion of its object (None: no tombstone)."""
    into = f"into {_listed(result_ids)}" if result_ids else "into nothing that is left"
    why = f"job {job} merged it {into}" if job else f"it was taken out {into}"
    if is_deleted:
        return Explanation(subject=subject, state="deleted", why=f"{why}, and its object is gone")
    if deletes_in_ms is None:
        return Explanation(subject=subject, state="replaced", why=why)
    when = f"{_after(deletes_in_ms)}" if deletes_in_ms > 0 else "with the next run of the control task"
    return Explanation(subject=subject, state="replaced", why=why, next=f"its object is deleted {when}")


def explain_job(job: JobFacts) -> Explanation:
    """Explain a job."""
    plain = _explain_state(job)
    if job.is_rewrite:
        return replace(plain, why=f"it writes a block again without deleted data; {plain.why}")
    if job.shard_count > 1:
        return replace(plain, why=f"it gathers what the tenant left in {job.shard_count} shards; {plain.why}")
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
                subject=subject, state="waiting", why=f"{_paused(job.paused)}{failed}", next="resuming that assigns it"
            )
        if job.pinned:
            why = f"it may only go to {job.pinned}{failed}"
            return Explanation(
                subject=subject, state="waiting", why=why, next="that, or unpinning it, gets it assigned"
            )
        if job.polling_workers and job.capped:
            then = "the end of one of its jobs, or a higher cap, makes room"
            return Explanation(subject=subject, state="waiting", why=f"{job.capped}{failed}", next=then)
        then = "the next poll with free capacity takes it, in its turn" if job.polling_workers else "starting a node"
        why = "no worker holds it" if job.polling_workers else "no worker polls"
        then = then if job.polling_workers else f"{then} gets it assigned"
        return Explanation(subject=subject, state="waiting", why=f"{why}{failed}", next=then)
    if job.state is JobState.BLOCKED:
        return Explanation(subject=subject, state="blocked", why=f"it waits for other jobs{failed}", next="their end")
    ago = "" if job.finished_at_ms is None else f" {_span(job.now_ms - job.finished_at_ms)} ago"
    if job.state is JobState.DONE:
        into = _listed(job.result_ids) or "nothing"
        return Explanation(subject=subject, state="done", why=f"{into} replaced its {job.source_count} sources{ago}")
    return Explanation(subject=subject, state=job.state.value, why=f"its blocks went back to queues or other jobs{ago}")


def _explain_leased(subject: str, job: JobFacts, failed: str) -> Explanation:
    left_ms = job.lease_expires_ms - job.now_ms
    if left_ms >= 0:
        return Explanation(
            subject=subject,
            state="leased",
            why=f"worker {job.worker} runs it and must renew within {_span(left_ms)}{failed}",
            next="its report ends it, its silence gives it to another worker",
        )
    why = f"worker {job.worker} held it and its lease is over since {_span(-left_ms)}{failed}"
    if 0 < job.failures_max <= job.failures:
        return Explanation(subject=subject, state="leased", why=why, next="the next poll parks it")
    then = "the next poll takes it over" if job.polling_workers else "no worker polls, so starting a node takes it over"
    return Explanation(subject=subject, state="leased", why=why, next=then)


def _explain_parked_job(subject: str, job: JobFacts) -> Explanation:
    kind = job.parked_kind or ParkedKind.EVICTED.value
    then = "requeueing it tries again, giving its blocks back plans them anew"
    if kind == ParkedKind.QUARANTINED.value:
        then = "releasing its block from quarantine tries again"
    return Explanation(subject=subject, state=f"parked ({kind})", why=job.parked_reason.rstrip("."), next=then)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """What waits and runs of a tenant, a table or a repository.

    ``waits`` are phrases of what no job was made of yet; ``stuck`` says why nothing is planned there, "" if it is.
    """

    running_jobs: int = 0
    waiting_jobs: int = 0
    parked_jobs: int = 0
    queued_blocks: int = 0
    due_blocks: int = 0
    waits: Sequence[str] = ()
    paused: Sequence[str] = ()
    stuck: str = ""
    polling_workers: int = 0


def explain_place(subject: str, place: PlaceFacts) -> Explanation:
    """Explain a tenant, a table or a repository as a whole."""
    due = f" ({place.due_blocks} of them due)" if place.due_blocks else ""
    parts = (
        (place.running_jobs, f"{count_words(place.running_jobs, 'job')} running"),
        (place.waiting_jobs, f"{count_words(place.waiting_jobs, 'job')} waiting"),
        (place.queued_blocks, f"{count_words(place.queued_blocks, 'block')} in queues{due}"),
        *((1, phrase) for phrase in place.waits),
        (place.parked_jobs, f"{count_words(place.parked_jobs, 'job')} parked"),
    )
    there = ", ".join(text for count, text in parts if count) or "nothing waits and no job runs"
    has_work = bool(place.waiting_jobs or place.queued_blocks or place.waits)
    if place.stuck:
        return Explanation(subject=subject, state="not planned", why=f"{place.stuck}: {there}")
    if place.paused:
        then = "resuming that lets it be planned and assigned"
        return Explanation(subject=subject, state="paused", why=f"{_paused(place.paused)}: {there}", next=then)
    parked = "requeueing the parked jobs, or giving their blocks back, tries them again" if place.parked_jobs else ""
    if place.running_jobs:
        return Explanation(subject=subject, state="being compacted", why=there, next=parked)
    if place.waiting_jobs or place.due_blocks:
        then = "the next poll with free capacity takes it, in its turn" if place.polling_workers else "starting a node"
        return Explanation(subject=subject, state="waiting", why=there, next=then)
    if has_work:
        then = "more data or time makes jobs of it"
        return Explanation(subject=subject, state="waiting", why=there, next=then)
    return Explanation(subject=subject, state="parked" if parked else "compacted", why=there, next=parked)


def explain_held_back(subject: str, paused: Sequence[str], why: str) -> Explanation:
    """Explain a block that waits to be planned while an operator's pause keeps its lane from planning."""
    return Explanation(
        subject=subject, state="waiting", why=f"{_paused(paused)}; {why}", next="resuming that lets it be planned"
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
