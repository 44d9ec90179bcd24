"""Build the sentences at the top of the front page from counts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webadmin.adminkit.formatting import counted, duration_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The numbers from which the sentences are built.

    Times are durations in milliseconds. ``paused_queues`` and ``paused_jobs`` are the numbers of ready queues and
    waiting jobs that an operator's pause holds.
    """

    block_count: int
    parked_blocks: int
    ready_queues: int
    waiting_queues: int
    next_ready_in_ms: int | None
    running_jobs: int
    waiting_jobs: int
    expired_jobs: int
    parked_jobs: int
    parked_sources: int
    live_jobs: int
    queue_max: int
    polling_workers: int
    known_workers: int
    broken_builds: Sequence[str] = ()
    paused: Sequence[str] = ()
    quarantined_blocks: int = 0
    paused_queues: int = 0
    paused_jobs: int = 0
    isolation_stop: str = ""
    failing_jobs: str = ""
    waiting_letters: int = 0
    letters_recovered_ms_ago: int | None = None
    late_requests: int = 0
    failing_deletions: int = 0
    buckets: int = 0
    silent_buckets: int = 0
    refused_tenants: int = 0
    kept_out_blocks: int = 0
    published_parts: int = 0
    too_large_groups: int = 0
    failing_writes: int = 0
    compactions_ahead: int = 0
    tables: int = 0
    refused_tables: int = 0
    unpublished_tables: int = 0
    quarantined_chunks: int = 0
    bad_files: int = 0
    stuck_chunks: int = 0
    expiring_credentials: int = 0
    log_behind: str = ""
    not_counting: str = ""
    unsafe_database: str = ""
    unknown_segments: int = 0
    failing_writers: int = 0
    store_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One sentence; ``place`` names the list that shows more."""

    tone: str
    text: str
    place: str = ""


def verdict(standing: Standing) -> list[Notice]:
    """Return notices that require action first, then informational ones; at least one."""
    found = [*_troubles(standing), *_set_aside(standing), *_expiring(standing)]
    needed = sorted(found, key=lambda notice: notice.tone != "bad")
    return [*needed, _course(standing)]


def _troubles(standing: Standing) -> Iterator[Notice]:
    if standing.unsafe_database:
        yield Notice(tone="bad", text=f"No push is acknowledged: {standing.unsafe_database}.", place="standstill")
    if standing.log_behind:
        text = f"{standing.log_behind[:1].upper()}{standing.log_behind[1:]}."
        yield Notice(tone="bad", text=text, place="standstill")
    if standing.not_counting:
        text = f"Beat or control does not run, so nothing is planned or cleaned up: {standing.not_counting}."
        yield Notice(tone="bad", text=text, place="standstill")
    if standing.failing_writers:
        writers = counted(standing.failing_writers, "segment writer")
        text = f"Pushes are refused: {writers} could not store segments at the last attempt: {standing.store_error}."
        yield Notice(tone="bad", text=text, place="writers")
    for broken in standing.broken_builds:
        yield Notice(tone="bad", text=f"{broken[:1].upper()}{broken[1:]}.", place="standstill")
    if standing.isolation_stop:
        text = f"Quarantine is stopped until an operator decides: {standing.isolation_stop}; check the object store."
        yield Notice(tone="bad", text=text, place="isolation_stop")
    if _has_work(standing) and not standing.polling_workers:
        known = (
            f"{counted(standing.known_workers, 'worker')} silent" if standing.known_workers else "none was ever seen"
        )
        yield Notice(tone="bad", text=f"There is work and no worker polls: {known}.", place="workers")
    for paused in standing.paused:
        yield Notice(tone="warn", text=f"Held still by an operator: {paused}.", place="pauses")
    if standing.unpublished_tables:
        text = f"{counted(standing.unpublished_tables, 'table')} with readers behind: the manifest cannot be written."
        yield Notice(tone="bad", text=text, place="tables")
    if standing.silent_buckets:
        text = f"{counted(standing.silent_buckets, 'bucket')} of Prometheus blocks not read: the last scan broke off."
        yield Notice(tone="bad", text=text, place="buckets")
    if standing.failing_writes:
        text = f"{counted(standing.failing_writes, 'write')} to buckets refused: results are not seen yet; tried again."
        yield Notice(tone="bad", text=text, place="outbox")
    if standing.late_requests:
        text = f"{counted(standing.late_requests, 'delete request')} late: objects still hold the data."
        yield Notice(tone="bad", text=text, place="late_requests")
    if standing.parked_jobs:
        held = counted(standing.parked_sources, "block")
        keeps = "keeps" if standing.parked_jobs == 1 else "keep"
        text = f"{counted(standing.parked_jobs, 'job')} parked; {keeps} {held} until someone decides."
        yield Notice(tone="bad", text=text, place="parked_jobs")
    if standing.parked_blocks:
        text = f"{counted(standing.parked_blocks, 'block')} parked: not compacted, still read by queries."
        yield Notice(tone="warn", text=text, place="parked_blocks")
    if standing.queue_max and standing.live_jobs >= standing.queue_max:
        text = f"The schedule is full: {counted(standing.live_jobs, 'job')} not done, and no new ones are planned."
        yield Notice(tone="warn", text=text, place="jobs")
    if standing.failing_jobs:
        yield Notice(tone="warn", text=f"{standing.failing_jobs}.", place="trouble")
    if standing.expired_jobs and standing.polling_workers:
        leases, are = ("lease", "is") if standing.expired_jobs == 1 else ("leases", "are")
        text = f"The {leases} of {counted(standing.expired_jobs, 'job')} {are} over; the next poll takes over."
        yield Notice(tone="warn", text=text, place="trouble")


def _set_aside(standing: Standing) -> Iterator[Notice]:
    if standing.quarantined_blocks:
        text = f"{counted(standing.quarantined_blocks, 'block')} in quarantine: damaged or missing, with the reason."
        yield Notice(tone="warn", text=text, place="quarantine")
    if standing.kept_out_blocks:
        text = f"{counted(standing.kept_out_blocks, 'block')} of buckets quarantined as unreadable, with the place."
        yield Notice(tone="warn", text=text, place="kept_out")
    if standing.bad_files:
        text = f"{counted(standing.bad_files, 'file')} of tables quarantined as unreadable, with the reason."
        yield Notice(tone="warn", text=text, place="bad_files")
    if standing.quarantined_chunks:
        text = f"{counted(standing.quarantined_chunks, 'chunk')} of tables quarantined after failures, until released."
        yield Notice(tone="warn", text=text, place="quarantined_chunks")
    if standing.stuck_chunks:
        text = f"{counted(standing.stuck_chunks, 'chunk')} of tables stuck: worth compacting, and of no task."
        yield Notice(tone="bad", text=text, place="tables")
    if standing.refused_tables:
        text = f"{counted(standing.refused_tables, 'table')} not planned, with the reason."
        yield Notice(tone="warn", text=text, place="tables")
    if standing.refused_tenants:
        text = f"{counted(standing.refused_tenants, 'tenant')} of buckets not planned, with the reason."
        yield Notice(tone="warn", text=text, place="refused_tenants")
    if standing.published_parts:
        text = (
            f"{counted(standing.published_parts, 'published block')} of buckets may be deleted as duplicates by "
            "another compactor: parts of groups in buckets that do not allow parts."
        )
        yield Notice(tone="bad", text=text, place="buckets")
    if standing.too_large_groups:
        text = f"{counted(standing.too_large_groups, 'group')} of buckets not merged: too large, and not to be cut."
        yield Notice(tone="warn", text=text, place="buckets")
    if standing.waiting_letters:
        waits = "waits" if standing.waiting_letters == 1 else "wait"
        text = f"{counted(standing.waiting_letters, 'dead letter')} {waits}: written, and not in the index yet."
        yield Notice(tone="warn", text=text, place="letters")
    if standing.letters_recovered_ms_ago is not None:
        ago = duration_text(max(standing.letters_recovered_ms_ago, 1000))
        text = f"Dead letters recovered {ago} ago: pushes that writers acknowledged without the index are in it now."
        yield Notice(tone="quiet", text=text)
    if standing.unknown_segments:
        segments = counted(standing.unknown_segments, "segment")
        text = f"{segments} in the bucket not in the index: run fsck --repair; they are never deleted automatically."
        yield Notice(tone="warn", text=text)
    if standing.failing_deletions:
        text = f"{counted(standing.failing_deletions, 'object')} not deleted when the store was asked; tried again."
        yield Notice(tone="warn", text=text, place="failing_deletions")


def _expiring(standing: Standing) -> Iterator[Notice]:
    if standing.expiring_credentials:
        expires = "expires" if standing.expiring_credentials == 1 else "expire"
        counted_text = counted(standing.expiring_credentials, "credential")
        text = f"{counted_text} {expires} within 14 days, or did already."
        yield Notice(tone="warn", text=text, place="credentials")


def _course(standing: Standing) -> Notice:
    if _has_work(standing):
        return Notice(tone="busy", text=_work(standing))
    if standing.paused_queues or standing.paused_jobs:
        return Notice(tone="quiet", text=f"All that could be done now is paused: {_paused_work(standing)}.")
    if standing.compactions_ahead:
        ahead = counted(standing.compactions_ahead, "compaction")
        return Notice(tone="good", text=f"Nothing to do now: {ahead} of buckets ahead, no job for them yet.")
    if not standing.block_count:
        if standing.tables:
            return Notice(tone="good", text=f"Nothing to do: no job runs for {counted(standing.tables, 'table')}.")
        if standing.buckets:
            buckets = counted(standing.buckets, "bucket")
            return Notice(tone="good", text=f"Nothing to do: no job runs for {buckets} of Prometheus blocks.")
        return Notice(tone="quiet", text="Nothing to do: the index holds no blocks yet.")
    if standing.waiting_queues:
        wait = ""
        if standing.next_ready_in_ms is not None:
            wait = f"; the next is ready in {duration_text(max(standing.next_ready_in_ms, 1000))}"
        return Notice(
            tone="good", text=f"Nothing to do now: {counted(standing.waiting_queues, 'queue')} filling{wait}."
        )
    return Notice(tone="good", text="Nothing to do: no queue waits and no job runs.")


def _has_work(standing: Standing) -> bool:
    return bool(standing.running_jobs or _free_jobs(standing) or _free_queues(standing))


def _free_jobs(standing: Standing) -> int:
    return standing.waiting_jobs - standing.paused_jobs


def _free_queues(standing: Standing) -> int:
    return standing.ready_queues - standing.paused_queues


def _paused_work(standing: Standing) -> str:
    parts = ((standing.paused_jobs, "job"), (standing.paused_queues, "queue"))
    return " and ".join(counted(count, noun) for count, noun in parts if count)


def _work(standing: Standing) -> str:
    """Describe running and runnable work; a job whose worker is silent does not run, although its lease has not
    expired.
    """
    running = standing.running_jobs - standing.expired_jobs if standing.polling_workers else 0
    parts = (
        (running, f"{counted(running, 'job')} running"),
        (standing.running_jobs - running, f"{counted(standing.running_jobs - running, 'job')} left behind"),
        (_free_jobs(standing), f"{counted(_free_jobs(standing), 'job')} waiting"),
        (_free_queues(standing), f"{counted(_free_queues(standing), 'queue')} ready"),
        (standing.paused_jobs + standing.paused_queues, f"{_paused_work(standing)} paused"),
    )
    words = ", ".join(text for count, text in parts if count)
    return f"Work continues: {words}." if running else f"Waiting for a worker with room: {words}."
