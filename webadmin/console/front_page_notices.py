"""Build the notices at the top of the front page from facts and what lanes add; reads nothing."""

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
from webadmin.progress.facts import Standstill
from webadmin.progress.health import counting_late
from webadmin.progress.models import ParkedJob
from webadmin.schedule.models import Job, Worker
from webadmin.schedule.operation_models import IsolationStop, Pause

TROUBLE_FILTER = "trouble"
PAUSES_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPageFacts:
    """What the front page reports besides the facts of the progress check: credentials and segment writers."""

    expiring_credentials: int = 0
    failing_writers: int = 0
    store_error: str = ""


def front_page_notices(facts: Standstill, others: FrontPageFacts, lanes: Sequence[LaneOverview]) -> list[Notice]:
    """Return notices that require action first, then informational ones; at least one."""
    found = [
        *_blockers(facts),
        *_failing_writers(others),
        *(notice for lane in lanes for notice in lane.notices),
        *_expiring(others),
    ]
    needed = sorted(found, key=lambda notice: notice.tone != "bad")
    return [*needed, _course(facts, lanes)]


def _blockers(facts: Standstill) -> Iterator[Notice]:
    if facts.unsafe_database:
        yield Notice(
            tone="bad", text=f"No push is acknowledged: {facts.unsafe_database}.", address=reverse("standstill-page")
        )
    if facts.log_behind:
        text = f"{facts.log_behind[:1].upper()}{facts.log_behind[1:]}."
        yield Notice(tone="bad", text=text, address=reverse("standstill-page"))
    if facts.slow_database:
        text = f"Work is slow: {facts.slow_database}."
        yield Notice(tone="warn", text=text, address=reverse("standstill-page"))
    if late := counting_late(facts.counted_ms_ago):
        text = f"Beat or control does not run, so nothing is planned or cleaned up: {late}."
        yield Notice(tone="bad", text=text, address=reverse("standstill-page"))
    for broken in facts.broken_builds:
        yield Notice(tone="bad", text=f"{broken[:1].upper()}{broken[1:]}.", address=reverse("standstill-page"))
    if facts.isolation_stop:
        text = f"Quarantine is stopped until an operator decides: {facts.isolation_stop}; check the object store."
        yield Notice(tone="bad", text=text, address=show.list_address(IsolationStop, ended_at_ms__isnull=1))
    if facts.is_work_due and not facts.polling_workers:
        known = f"{counted(facts.known_workers, 'worker')} silent" if facts.known_workers else "none was ever seen"
        yield Notice(tone="bad", text=f"There is work and no worker polls: {known}.", address=show.list_address(Worker))
    for paused in _first(facts.paused):
        text = f"Paused by an operator: {paused}."
        yield Notice(tone="warn", text=text, address=show.list_address(Pause, now="in_force"))
    if facts.parked_jobs:
        held = counted(facts.parked_blocks, "block")
        keeps = "keeps" if facts.parked_jobs == 1 else "keep"
        text = f"{counted(facts.parked_jobs, 'job')} parked; {keeps} {held} until an operator decides."
        yield Notice(tone="bad", text=text, address=show.list_address(ParkedJob))
    if facts.queue_max and facts.live_jobs >= facts.queue_max:
        text = f"The schedule is full: {counted(facts.live_jobs, 'job')} not done, and no new ones are planned."
        yield Notice(tone="warn", text=text, address=show.list_address(Job))
    if facts.failing_jobs:
        yield Notice(tone="warn", text=f"{facts.failing_jobs}.", address=show.list_address(Job, state=TROUBLE_FILTER))
    if facts.expired_jobs and facts.polling_workers:
        leases, are = ("lease", "is") if facts.expired_jobs == 1 else ("leases", "are")
        text = f"The {leases} of {counted(facts.expired_jobs, 'job')} {are} over; the next poll takes over."
        yield Notice(tone="warn", text=text, address=show.list_address(Job, state=TROUBLE_FILTER))


def _failing_writers(others: FrontPageFacts) -> Iterator[Notice]:
    if others.failing_writers:
        writers = counted(others.failing_writers, "segment writer")
        text = f"Pushes are refused: {writers} could not store segments at the last attempt: {others.store_error}."
        yield Notice(tone="bad", text=text, address=show.list_address(Instance))


def _expiring(others: FrontPageFacts) -> Iterator[Notice]:
    if others.expiring_credentials:
        expires = "expires" if others.expiring_credentials == 1 else "expire"
        counted_text = counted(others.expiring_credentials, "credential")
        text = f"{counted_text} {expires} within 14 days, or did already."
        yield Notice(tone="warn", text=text, address=show.list_address(WorkerCredential))


def _course(facts: Standstill, lanes: Sequence[LaneOverview]) -> Notice:
    if facts.is_work_due:
        return Notice(tone="busy", text=_work(facts))
    if facts.paused_queues or facts.paused_jobs:
        return Notice(tone="quiet", text=f"All that could be done now is paused: {_paused_work(facts)}.")
    if ahead := [lane.ahead for lane in lanes if lane.ahead]:
        return Notice(tone="good", text=f"Nothing to do now: {', '.join(ahead)}.")
    if holds := [lane.holds for lane in lanes if lane.holds]:
        return Notice(tone="good", text=f"Nothing to do: no queue waits and no job runs for {', '.join(holds)}.")
    return Notice(tone="quiet", text="Nothing to do: there is no data yet.")


def _first(names: Sequence[str]) -> list[str]:
    """Return the first names, and the count of the rest in one more line."""
    more = len(names) - PAUSES_NAMED
    return [*names[:PAUSES_NAMED], f"{show.count_text(more)} more"] if more > 0 else list(names)


def _paused_work(facts: Standstill) -> str:
    parts = ((facts.paused_jobs, "job"), (facts.paused_queues, "queue"))
    return " and ".join(counted(count, noun) for count, noun in parts if count)


def _work(facts: Standstill) -> str:
    """Describe running and runnable work; a job whose worker is silent does not run, although its lease has not
    expired.
    """
    waiting = facts.due_jobs - facts.leased_jobs
    running = facts.leased_jobs - facts.expired_jobs if facts.polling_workers else 0
    parts = (
        (running, f"{counted(running, 'job')} running"),
        (facts.leased_jobs - running, f"{counted(facts.leased_jobs - running, 'job')} left behind"),
        (waiting, f"{counted(waiting, 'job')} waiting"),
        (facts.due_queues, f"{counted(facts.due_queues, 'queue')} ready"),
        (facts.paused_jobs + facts.paused_queues, f"{_paused_work(facts)} paused"),
    )
    words = ", ".join(text for count, text in parts if count)
    return f"Work continues: {words}." if running else f"Waiting for a worker with room: {words}."
