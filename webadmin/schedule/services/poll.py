"""One poll of a worker: its reports are settled, its leases renewed, and it gets as many jobs as it can take.

Read a snapshot, let the engine decide, apply in one short transaction; if others were quicker, begin again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from engine.protocol.messages import Assignment, LeaseGrant, PollRequest, PollResponse
from engine.schedule.model import ChangeSet, RenewLease
from engine.schedule.prepare import prepare
from webadmin.base.access.errors import NameTaken, TooManyNames
from webadmin.base.access.models import WorkerCredential
from webadmin.base.database.dialect import among, as_instance, clock_ms, read_rows, time_value, together, wait_for_disk
from webadmin.base.database.turns import turn
from webadmin.schedule.command_log import advance_clock
from webadmin.schedule.errors import ScheduleBusy, StaleSnapshot
from webadmin.schedule.fair_shares import rest_tenants
from webadmin.schedule.kept_out import rest_queues
from webadmin.schedule.lanes import by_lane, lane_of, prepare_swaps
from webadmin.schedule.models import Job, Worker
from webadmin.schedule.planning_view import PlanningRules, ask_rules
from webadmin.schedule.poll_opening import PollOpening, ask_opening, open_poll
from webadmin.schedule.poll_view import PollView, Reported, read_poll, read_reported, token_codec
from webadmin.schedule.services.apply_change_set import TOLD_COLUMNS, AppliedCommand, ApplyContext, apply_change_set
from webadmin.schedule.services.renew_leases import renew_leases

log = logging.getLogger(__name__)

ATTEMPTS_MAX = 8
"""Prepares per poll; each failed one means that another poll got through."""
PLANNING = 0x6C697468
"""The number of the turn to plan, among the turns that others may take in the same database."""
SEEN_GRAIN = timedelta(seconds=5)
"""How precisely we want to know when a worker polled last, without a write per poll."""
NEW_NAMES_MAX = 1000
"""Workers that one credential may name for the first time within NEW_NAMES_SPAN: each name is kept."""
NEW_NAMES_SPAN = timedelta(hours=1)
SEEN_RECENTLY = (
    "WHERE name = %s AND credential_id = %s AND build = %s AND capacity = %s AND last_poll_at BETWEEN %s AND %s"
)


def poll(*, request: PollRequest, credential: WorkerCredential, at: datetime) -> PollResponse:
    """Answer a worker's poll. ``at`` is the time by this process's clock, on which nothing rests.

    Raises ScheduleBusy, NameTaken, TooManyNames.
    """
    asked = _Asked(request, _note_worker(request, credential, at), credential.key_id)
    worker = asked.worker
    for attempt in range(ATTEMPTS_MAX):
        asked.read_reported()
        with _turn(asked) as (opening, rules):
            view = read_poll(request, worker, credential.key_id, opening, asked.reported, rules)
            if view.resting:  # they would have taken the places of others
                rest_queues(view.resting, now_ms=view.time.now_ms)
                if attempt + 1 < ATTEMPTS_MAX:
                    continue
            change_set = prepare(view.snapshot)
            expires_ms = view.time.now_ms + view.snapshot.limits.lease_ms
            renewed = renew_leases(change_set.renewed, worker=worker, expires_ms=expires_ms)
            try:
                applied = _apply(change_set, view, worker, asked.prepared, is_again=attempt > 0)
            except StaleSnapshot as error:
                log.info("poll_prepared_again worker=%s reason=%s", worker.name, error)
                continue
        if view.ready.asleep:
            rest_tenants(view.ready.asleep)
        _go_on(change_set, view)
        with together():  # one wait for the disk and for what the answer needs
            if asked.is_early or (applied and applied.is_early):
                wait_for_disk()
            return _answer(view, renewed, applied, credential.key_id)
    raise ScheduleBusy(f"others changed the schedule {ATTEMPTS_MAX} times while this poll was prepared; poll again")


@dataclass(slots=True)
class _Asked:
    """A request, whose it is, and what is known of the jobs that it reports. ``is_early`` says that some are completed
    already, which the disk may not have yet."""

    request: PollRequest
    worker: Worker
    credential: str
    reported: Reported = field(default_factory=Reported)
    prepared: Mapping[str, Any] = field(default_factory=dict)
    is_early: bool = False

    def read_reported(self) -> None:
        """Read the reported jobs, check the reports, and make ready what finished jobs need."""
        self.reported = read_reported(self.request.updates, self.worker, self.credential)
        self.prepared = prepare_swaps(self.reported.coming())

    def complete(self, opening: PollOpening, rules: PlanningRules) -> None:
        """Complete the finished jobs by a command of their own, as a poll that asks for nothing would."""
        if not self.reported.swaps:
            return
        finished = self.reported.only_finished()
        request = replace(self.request, capacity=0, heard=0)
        view = read_poll(request, self.worker, self.credential, opening, finished, rules)
        change_set = prepare(view.snapshot)
        try:
            applied = _apply(change_set, view, self.worker, self.prepared, is_again=False)
        except StaleSnapshot as error:  # the poll itself tries again
            log.info("poll_completed_later worker=%s reason=%s", self.worker.name, error)
            self.read_reported()
            return
        self.is_early |= applied is not None and applied.is_early
        self.reported = self.reported.without(done.job.name for done in change_set.completed)
        self.prepared = {}
        _go_on(change_set, view)


@contextmanager
def _turn(asked: _Asked) -> Iterator[tuple[PollOpening, PlanningRules | None]]:
    """Read what a poll begins with; if there may be jobs for it, when it is its turn to plan.

    Two that plan at once choose the same queues, so that one of them does so in vain. Nothing rests on taking turns.
    Who has to wait for it completes its finished jobs meanwhile: half of a poll's work, and nobody's turn. While it has
    the turn, everybody else waits for what it waits for: what planning goes by is asked along with that.
    """
    capacity = asked.request.capacity
    if not capacity:
        yield _awake(open_poll(), asked.worker), None
        return

    def meanwhile(start: tuple[PollOpening, PlanningRules]) -> bool:
        opening = _awake(start[0], asked.worker)
        if opening.has_work:
            asked.complete(opening, start[1])
        return opening.has_work

    with turn(PLANNING, asking=lambda: _ask_start(capacity), meanwhile=meanwhile) as (opening, rules):
        yield _awake(opening, asked.worker), rules


def _ask_start(capacity: int) -> Callable[[], tuple[PollOpening, PlanningRules]]:
    with together():
        asked_opening, asked_rules = ask_opening(), ask_rules(capacity)

    def answer() -> tuple[PollOpening, PlanningRules]:
        opening = asked_opening()
        return opening, asked_rules(opening)

    return answer


def _awake(opening: PollOpening, worker: Worker) -> PollOpening:
    """Return what a poll begins with once the service has noticed that it was away."""
    if opening.time.was_away and opening.live_job_count:
        advance_clock(actor=f"worker:{worker.name}")  # before anything is decided: it extends the leases
        opening = open_poll()
    return opening


def _note_worker(request: PollRequest, credential: WorkerCredential, at: datetime) -> Worker:
    """Return the worker's row; a name belongs to its credential until that is revoked."""
    seen = (request.worker, credential.id, request.build, request.capacity, time_value(at - SEEN_GRAIN), time_value(at))
    if known := read_rows(Worker, ("id",), SEEN_RECENTLY, seen):
        return Worker(id=known[0][0], name=request.worker, credential=credential, build=request.build)
    workers = Worker.objects.select_related("credential")
    if not workers.filter(name=request.worker).exists():
        _check_new_name(credential)
    worker, _ = workers.get_or_create(name=request.worker, defaults={"credential": credential, "build": request.build})
    if worker.credential_id != credential.id and worker.credential.revoked_at is None:
        raise NameTaken(f"the worker name {request.worker!r} belongs to the credential {worker.credential.name!r}")
    # By the clock that all processes share: whether a worker is silent must not depend on who has heard of it.
    heard_at = datetime.fromtimestamp(clock_ms() / 1000, UTC)
    Worker.objects.filter(id=worker.id).update(
        credential=credential, build=request.build, capacity=request.capacity, last_poll_at=heard_at
    )
    worker.build = request.build
    return worker


def _check_new_name(credential: WorkerCredential) -> None:
    since = timezone.now() - NEW_NAMES_SPAN
    count = Worker.objects.filter(credential=credential, first_poll_at__gt=since).count()
    if count >= NEW_NAMES_MAX:
        raise TooManyNames(f"the credential {credential.name!r} has named {count} new workers within the last hour")


def _apply(
    change_set: ChangeSet, view: PollView, worker: Worker, prepared: Mapping[str, Any], *, is_again: bool
) -> AppliedCommand | None:
    if not change_set.changes_plan():
        if view.waits_for_time:
            advance_clock(actor=f"worker:{worker.name}")
        return None
    context = ApplyContext(
        worker=worker,
        limits=view.limits,
        policies=view.policies,
        ready=view.ready,
        fronts=view.fronts,
        lane_places={lane.lane: lane.queue_max for lane in view.snapshot.lanes if lane.queue_max},
        swaps=view.swaps,
        prepared=prepared,
        nobodys_count=view.nobodys_count,
        takes_head_first=is_again,
    )
    applied = apply_change_set(change_set, context)
    _log(change_set, applied, worker)
    return applied


def _go_on(change_set: ChangeSet, view: PollView) -> None:
    """Let lanes go on whose results are in place now."""
    for lane in dict.fromkeys(done.job.lane for done in change_set.completed):
        lane_of(lane).swapped([view.swaps[done.job.name] for done in change_set.completed if done.job.lane == lane])


def _log(change_set: ChangeSet, applied: AppliedCommand, worker: Worker) -> None:
    for completed in change_set.completed:
        log.info("job_completed job=%s token=%d worker=%s", completed.job.name, completed.job.token, worker.name)
    for returned in change_set.returned:
        log.warning(
            "job_returned job=%s token=%d outcome=%s failures=%d parked=%s reason=%s",
            returned.job.name,
            returned.job.token,
            returned.outcome.value,
            returned.failures,
            bool(returned.parked_reason),
            returned.reason.message if returned.reason else "",
        )
    names = [assigned.job.name for assigned in change_set.assigned] + [new.plan.name for new in change_set.created]
    for name in names:
        log.info("job_assigned job=%s token=%d worker=%s", name, applied.index, worker.name)


def _answer(
    view: PollView, renewed: Iterable[RenewLease], applied: AppliedCommand | None, credential: str
) -> PollResponse:
    codec, expires_in = token_codec(), view.snapshot.limits.lease_ms / 1000
    leases = tuple(
        LeaseGrant(
            job=renewal.job.name,
            token=codec.encode(job=renewal.job.name, index=renewal.job.token, credential=credential),
            expires_in=expires_in,
        )
        for renewal in renewed
    )
    assignments = _assignments(applied) if applied and applied.assigned else []
    return PollResponse(
        serial=applied.index if applied else view.last_index,
        leases=leases,
        assignments=tuple(
            Assignment(
                job=name,
                token=codec.encode(job=name, index=applied.index if applied else 0, credential=credential),
                spec=spec,
                expires_in=expires_in,
            )
            for name, spec in assignments
        ),
    )


def _assignments(applied: AppliedCommand) -> list[tuple[str, dict[str, Any]]]:
    """Return the names of the jobs just assigned and what their workers are told, in the order of their assignment."""
    jobs = dict(applied.created)
    if others := [job_id for job_id in applied.assigned if job_id not in jobs]:
        own, values = among(Job, "id", others)
        for row in read_rows(Job, TOLD_COLUMNS, f"WHERE {own}", values):
            jobs[row[0]] = as_instance(Job, TOLD_COLUMNS, (*row[:-1], json.loads(row[-1])))
    specs: dict[int, dict[str, Any]] = {}
    for lane, own in by_lane(jobs[job_id] for job_id in applied.assigned).items():
        specs |= lane_of(lane).specs(own, applied.index)
    return [(jobs[job_id].name, specs[job_id]) for job_id in applied.assigned]
