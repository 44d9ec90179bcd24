"""Build the sentences at the top of the front page from counts and what lanes add; reads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.urls import reverse

from webadmin.adminkit import formatting as show
from webadmin.adminkit.formatting import counted
from webadmin.adminkit.overview import LaneOverview
from webadmin.adminkit.sections import Notice
from webadmin.base.access.models import WorkerCredential
from webadmin.placement.models import Instance
from webadmin.progress.models import ParkedJob
from webadmin.schedule.models import Job, Worker
from webadmin.schedule.operation_models import IsolationStop, Pause

TROUBLE_FILTER = "trouble"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The numbers from which the sentences are built.

    Times are durations in milliseconds. ``paused_queues`` and ``paused_jobs`` are the numbers of ready queues and
    waiting jobs that an operator's pause holds.
    """

    ready_queues: int
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
    paused_queues: int = 0
    paused_jobs: int = 0
    isolation_stop: str = ""
    failing_jobs: str = ""
    expiring_credentials: int = 0
    log_behind: str = ""
    not_counting: str = ""
    unsafe_database: str = ""
    slow_database: str = ""
    failing_writers: int = 0
    store_error: str = ""


def verdict(standing: Standing, lanes: Sequence[LaneOverview]) -> list[Notice]:
    """Return notices that require action first, then informational ones; at least one."""
    found = [*_troubles(standing), *(notice for lane in lanes for notice in lane.notices), *_expiring(standing)]
    needed = sorted(found, key=lambda notice: notice.tone != "bad")
    return [*needed, _course(standing, lanes)]


def _troubles(standing: Standing) -> Iterator[Notice]:
    if standing.unsafe_database:
        yield Notice(
            tone="bad", text=f"No push is acknowledged: {standing.unsafe_database}.", address=reverse("standstill-page")
        )
    if standing.log_behind:
        text = f"{standing.log_behind[:1].upper()}{standing.log_behind[1:]}."
        yield Notice(tone="bad", text=text, address=reverse("standstill-page"))
    if standing.slow_database:
        text = f"Work is slow: {standing.slow_database}."
        yield Notice(tone="warn", text=text, address=reverse("standstill-page"))
    if standing.not_counting:
        text = f"Beat or control does not run, so nothing is planned or cleaned up: {standing.not_counting}."
        yield Notice(tone="bad", text=text, address=reverse("standstill-page"))
    if standing.failing_writers:
        writers = counted(standing.failing_writers, "segment writer")
        text = f"Pushes are refused: {writers} could not store segments at the last attempt: {standing.store_error}."
        yield Notice(tone="bad", text=text, address=show.list_address(Instance))
    for broken in standing.broken_builds:
        yield Notice(tone="bad", text=f"{broken[:1].upper()}{broken[1:]}.", address=reverse("standstill-page"))
    if standing.isolation_stop:
        text = f"Quarantine is stopped until an operator decides: {standing.isolation_stop}; check the object store."
        yield Notice(tone="bad", text=text, address=show.list_address(IsolationStop, ended_at_ms__isnull=1))
    if _has_work(standing) and not standing.polling_workers:
        known = (
            f"{counted(standing.known_workers, 'worker')} silent" if standing.known_workers else "none was ever seen"
        )
        yield Notice(tone="bad", text=f"There is work and no worker polls: {known}.", address=show.list_address(Worker))
    for paused in standing.paused:
        yield Notice(
            tone="warn", text=f"Held still by an operator: {paused}.", address=show.list_address(Pause, now="in_force")
        )
    if standing.parked_jobs:
        held = counted(standing.parked_sources, "block")
        keeps = "keeps" if standing.parked_jobs == 1 else "keep"
        text = f"{counted(standing.parked_jobs, 'job')} parked; {keeps} {held} until someone decides."
        yield Notice(tone="bad", text=text, address=show.list_address(ParkedJob))
    if standing.queue_max and standing.live_jobs >= standing.queue_max:
        text = f"The schedule is full: {counted(standing.live_jobs, 'job')} not done, and no new ones are planned."
        yield Notice(tone="warn", text=text, address=show.list_address(Job))
    if standing.failing_jobs:
        yield Notice(
            tone="warn", text=f"{standing.failing_jobs}.", address=show.list_address(Job, state=TROUBLE_FILTER)
        )
    if standing.expired_jobs and standing.polling_workers:
        leases, are = ("lease", "is") if standing.expired_jobs == 1 else ("leases", "are")
        text = f"The {leases} of {counted(standing.expired_jobs, 'job')} {are} over; the next poll takes over."
        yield Notice(tone="warn", text=text, address=show.list_address(Job, state=TROUBLE_FILTER))


def _expiring(standing: Standing) -> Iterator[Notice]:
    if standing.expiring_credentials:
        expires = "expires" if standing.expiring_credentials == 1 else "expire"
        counted_text = counted(standing.expiring_credentials, "credential")
        text = f"{counted_text} {expires} within 14 days, or did already."
        yield Notice(tone="warn", text=text, address=show.list_address(WorkerCredential))


def _course(standing: Standing, lanes: Sequence[LaneOverview]) -> Notice:
    if _has_work(standing):
        return Notice(tone="busy", text=_work(standing))
    if standing.paused_queues or standing.paused_jobs:
        return Notice(tone="quiet", text=f"All that could be done now is paused: {_paused_work(standing)}.")
    if ahead := [lane.ahead for lane in lanes if lane.ahead]:
        return Notice(tone="good", text=f"Nothing to do now: {', '.join(ahead)}.")
    if holds := [lane.holds for lane in lanes if lane.holds]:
        return Notice(tone="good", text=f"Nothing to do: no queue waits and no job runs for {', '.join(holds)}.")
    return Notice(tone="quiet", text="Nothing to do: there is no data yet.")


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
