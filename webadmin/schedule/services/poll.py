"""One poll of a worker: apply its reports, renew its leases, and assign jobs up to its capacity.

Read a snapshot, decide in the engine, write in one short transaction; on a conflict, retry.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from engine.protocol.messages import Assignment, LeaseGrant, PollRequest, PollResponse
from engine.schedule.model import ChangeSet, RenewLease
from engine.schedule.prepare import prepare
from webadmin.base.access.errors import NameTaken, TooManyNames
from webadmin.base.access.models import WorkerCredential
from webadmin.base.database.advisory_lock import advisory_lock
from webadmin.base.database.dialect import among, as_instance, clock_ms, pipeline, read_rows, time_value, wait_for_disk
from webadmin.schedule.command_log import advance_clock
from webadmin.schedule.errors import ScheduleBusy, StaleSnapshot
from webadmin.schedule.lanes import by_lane, lane_of, prepare_swaps
from webadmin.schedule.models import Job, Worker
from webadmin.schedule.polls.opening import PollOpening, open_poll
from webadmin.schedule.polls.view import PollView, read_poll, read_reported, token_codec
from webadmin.schedule.services.apply_change_set import SPEC_COLUMNS, AppliedCommand, ApplyContext, apply_change_set
from webadmin.schedule.services.renew_leases import renew_leases

log = logging.getLogger(__name__)

ATTEMPTS_MAX = 8
"""Attempts per poll; each failed one means that another poll has committed."""
PLANNING = 0x6C697468
"""The advisory lock that serialises planners."""
SEEN_GRAIN = timedelta(seconds=5)
"""The precision of a worker's last poll, which saves a write per poll."""
NEW_NAMES_MAX = 1000
"""Workers that one credential may name for the first time within NEW_NAMES_SPAN: each name is stored."""
NEW_NAMES_SPAN = timedelta(hours=1)
SEEN_RECENTLY = (
    "WHERE name = %s AND credential_id = %s AND build = %s AND capacity = %s AND last_poll_at BETWEEN %s AND %s"
)


def poll(*, request: PollRequest, credential: WorkerCredential, at: datetime) -> PollResponse:
    """Answer a worker's poll. ``at`` is the time by this process's clock, on which no decision depends.

    Raises ScheduleBusy, NameTaken, TooManyNames.
    """
    worker = _record_worker(request, credential, at)
    for attempt in range(ATTEMPTS_MAX):
        reported = read_reported(request.updates, worker, credential.key_id)
        prepared = prepare_swaps(reported.swaps_by_lane())
        with _planning(request, worker) as opening:
            view = read_poll(request, worker, credential.key_id, opening, reported)
            must_read_again = [plans.settle() for plans in view.plans.values()]
            if any(must_read_again) and attempt + 1 < ATTEMPTS_MAX:
                continue
            change_set = prepare(view.snapshot)
            expires_ms = opening.time.now_ms + view.snapshot.limits.lease_ms
            renewed = renew_leases(change_set.renewed, worker=worker, expires_ms=expires_ms)
            try:
                applied = _write(change_set, view, prepared, worker, is_retry=attempt > 0)
            except StaleSnapshot as error:
                log.info("poll_prepared_again worker=%s reason=%s", worker.name, error)
                continue
        _run_post_commit_hooks(change_set, view)
        with pipeline():  # one wait for both durability and the data of the answer
            if applied and applied.is_early:
                wait_for_disk()
            return _answer(view, renewed, applied, credential.key_id)
    raise ScheduleBusy(f"others changed the schedule {ATTEMPTS_MAX} times while this poll was prepared; poll again")


@contextmanager
def _planning(request: PollRequest, worker: Worker) -> Iterator[PollOpening]:
    """Read the global state of a poll; if there may be jobs for the worker, under the planners' advisory lock.

    Two concurrent planners choose the same queues, and one of them fails. Correctness does not depend on the lock.
    """
    opening = _open(worker)
    if not (request.capacity and opening.has_work):
        yield opening
        return
    with advisory_lock(PLANNING):
        yield _open(worker)


def _open(worker: Worker) -> PollOpening:
    """Return the global state of a poll; first extend all leases if the service was unavailable."""
    opening = open_poll()
    if opening.time.was_away and opening.live_job_count:
        advance_clock(actor=f"worker:{worker.name}")
        opening = open_poll()
    return opening


def _record_worker(request: PollRequest, credential: WorkerCredential, at: datetime) -> Worker:
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
    # By the clock that all processes share: whether a worker is silent must not depend on the process it polled.
    seen_at = datetime.fromtimestamp(clock_ms() / 1000, UTC)
    Worker.objects.filter(id=worker.id).update(
        credential=credential, build=request.build, capacity=request.capacity, last_poll_at=seen_at
    )
    worker.build = request.build
    return worker


def _check_new_name(credential: WorkerCredential) -> None:
    since = timezone.now() - NEW_NAMES_SPAN
    count = Worker.objects.filter(credential=credential, first_poll_at__gt=since).count()
    if count >= NEW_NAMES_MAX:
        raise TooManyNames(f"the credential {credential.name!r} has named {count} new workers within the last hour")


def _write(
    change_set: ChangeSet, view: PollView, prepared: dict[str, Any], worker: Worker, *, is_retry: bool
) -> AppliedCommand | None:
    if not change_set.changes_plan():
        if view.waits_for_time:
            advance_clock(actor=f"worker:{worker.name}")
        return None
    context = ApplyContext(
        worker=worker,
        limits=view.opening.limits,
        swaps=view.reported.swaps,
        prepared=prepared,
        plans=view.plans,
        lane_places={lane.lane: lane.queue_max for lane in view.snapshot.lanes if lane.queue_max},
        unclaimable_job_count=view.unclaimable_job_count,
        takes_head_first=is_retry,
    )
    applied = apply_change_set(change_set, context)
    _log(change_set, applied, worker)
    return applied


def _run_post_commit_hooks(change_set: ChangeSet, view: PollView) -> None:
    """Run the hooks of lanes whose results were swapped in."""
    for lane in dict.fromkeys(done.job.lane for done in change_set.completed):
        swaps = [view.reported.swaps[done.job.name] for done in change_set.completed if done.job.lane == lane]
        lane_of(lane).swapped(swaps)


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
        serial=applied.index if applied else view.opening.last_index,
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
    """Return the names of the jobs just assigned and their specifications, in the sequence of assignment."""
    jobs = dict(applied.created)
    if others := [job_id for job_id in applied.assigned if job_id not in jobs]:
        those, values = among(Job, "id", others)
        for row in read_rows(Job, SPEC_COLUMNS, f"WHERE {those}", values):
            jobs[row[0]] = as_instance(Job, SPEC_COLUMNS, (*row[:-1], json.loads(row[-1])))
    specs: dict[int, dict[str, Any]] = {}
    for lane, own in by_lane(jobs[job_id] for job_id in applied.assigned).items():
        specs |= lane_of(lane).specs(own, applied.index)
    return [(jobs[job_id].name, specs[job_id]) for job_id in applied.assigned]
