"""Reads what one poll's decisions rest on. The number of queries and rows is bounded by capacity and reports alone.

Nothing here is locked: whoever applies the decisions checks again what they rest on.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django.conf import settings

from engine.errors import LithifyError
from engine.profiles.model import DATASET_PROFILES, BlockMeta
from engine.protocol.errors import InvalidToken
from engine.protocol.messages import FailureReason, JobUpdate, PollRequest, UpdateStatus
from engine.protocol.profile_jobs import ProfileMergeResult
from engine.protocol.profile_results import read_profile_result
from engine.protocol.tokens import TokenCodec
from engine.scheduling.completion import CompletionFacts, check_result
from engine.scheduling.errors import ResultRefused
from engine.scheduling.limits import EffectiveLimits, LimitName
from engine.scheduling.model import HOLDING_STATES, JobState, JobView, PolicyName, Report, ScheduleSnapshot
from webadmin.database.dialect import marks, quick_cursor, read_rows
from webadmin.index.errors import BlockRefused
from webadmin.index.masks import JobMasks, job_masks
from webadmin.index.models import AcceptedId
from webadmin.index.registration import BlockRegistration, check_registration
from webadmin.index.services.replace_blocks import Replacement
from webadmin.index.states import BlockState
from webadmin.schedule.command_log import CommandTime
from webadmin.schedule.level_policies import LevelPolicies
from webadmin.schedule.models import Job, LevelQueue, Limits, Worker
from webadmin.schedule.pins import open_to
from webadmin.schedule.planning_view import (
    QueueFront,
    ReadyQueues,
    TenantKey,
    read_blocks,
    read_ready,
    read_shares,
    without_ending,
    without_paused,
)
from webadmin.schedule.poll_opening import PollOpening, open_poll
from webadmin.schedule.queries import effective_limits, level_policies, schedule_limits
from webadmin.schedule.remnant_view import with_remnants

JOB_COLUMNS = (
    *("id", "name", "lane", "tenant", "shard", "level", "state", "token", "worker_id", "lease_expires_ms"),
    *("failures", "added_at_ms", "priority_ms", "source_bytes", "spec"),
)
"""What reports and results are checked against; what else a job's row holds is left to itself."""
# All blocks of the jobs: a condition on the state as well would make PostgreSQL read every owned block there is.
_SOURCES = """
SELECT b.state, b.id, b.owner_job_id, b.ulid, b.min_time_ms, b.max_time_ms,
       t.name, n.name, d.min_time_ms, d.max_time_ms
FROM index_block b
LEFT JOIN index_dataset d ON d.block_id = b.id AND d.format = %s
LEFT JOIN access_tenant t ON t.id = d.tenant_id
LEFT JOIN index_datasetname n ON n.id = d.name_id
WHERE b.owner_job_id IN {jobs}
"""
HELD = f"state IN ({', '.join(repr(state.value) for state in HOLDING_STATES)})"
"""The jobs whose names are unique, in the words of their partial index."""
HELD_MAX = 1000
"""Jobs of one worker that one poll compares with what the worker names."""
EXHAUSTED_MAX = 32
"""Jobs without a run left that one poll may park, beside those it may assign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollView:
    """A poll's snapshot, and what applying its decisions needs besides."""

    snapshot: ScheduleSnapshot
    time: CommandTime
    limits: Limits
    policies: LevelPolicies
    replacements: dict[str, Replacement]
    ready: ReadyQueues
    fronts: tuple[QueueFront, ...]
    waits_for_time: bool
    last_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a request says of jobs: those it names, its reports, and what results that fit would replace."""

    jobs: dict[str, Job] = field(default_factory=dict)
    reports: tuple[Report, ...] = ()
    replacements: dict[str, Replacement] = field(default_factory=dict)

    def ending(self) -> list[Job]:
        """Return the jobs whose end is reported."""
        ends = {report.update.job for report in self.reports if report.update.status is not UpdateStatus.IN_PROGRESS}
        return [job for job in self.jobs.values() if job.name in ends and job.state == JobState.LEASED]

    def coming(self) -> list[BlockRegistration]:
        """Return the blocks that may come into the index by this poll."""
        swaps = [swap for name, swap in self.replacements.items() if self.jobs[name].state == JobState.LEASED]
        return [result for swap in swaps for result in swap.results]


@dataclass(slots=True, kw_only=True)
class _Sources:
    """The sources of a reported job as the index has them: row ids by id, the datasets in each row, their times."""

    rows: dict[str, int] = field(default_factory=dict)
    datasets: defaultdict[int, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    times: list[int] = field(default_factory=list)


class _Accepted(NamedTuple):
    """A result that fits, and what it replaces."""

    result: ProfileMergeResult
    replacement: Replacement


def token_codec() -> TokenCodec:
    """Return the codec with the keys of this installation."""
    return TokenCodec([key.encode() for key in settings.TOKEN_KEYS])


def read_poll(
    request: PollRequest,
    worker: Worker,
    credential: str,
    opening: PollOpening | None = None,
    reported: Reported | None = None,
) -> PollView:
    """Read everything that ``prepare`` may look at for this request, but what was read before."""
    opening = opening or open_poll()
    reported = reported or read_reported(request.updates, worker, credential)
    time, policies, jobs = opening.time, level_policies(), reported.jobs
    job_max = request.capacity if opening.has_work else 0
    assignable = _assignable(request, opening) if job_max else []
    held = _held_jobs(worker, request.heard)
    ending = [*reported.ending(), *(job for job in held if job.name not in jobs)]
    ready = read_ready(opening, job_max=job_max, ending=ending)
    tenants = ready.tenants() | {(job.lane, job.tenant) for job in assignable}
    own = _own_limits(opening, tenants, [*jobs.values(), *assignable])
    lanes, shares = read_shares(tenants, ready, own)
    fronts = read_blocks(
        ready.queues, policies, (lanes, without_ending(shares, ending)), now_ms=time.now_ms, job_max=job_max
    )
    snapshot = ScheduleSnapshot(
        now_ms=time.now_ms,
        worker=worker.name,
        capacity=request.capacity,
        limits=schedule_limits(opening.limits),
        reports=reported.reports,
        reported={name: _job_view(job, own) for name, job in jobs.items()},
        heard=request.heard,
        held=tuple(_job_view(job, own) for job in held),
        assignable=tuple(_job_view(job, own) for job in assignable),
        queues=with_remnants([front.to_plan() for front in fronts], now_ms=time.now_ms),
        live_job_count=opening.live_job_count,
        lanes=lanes,
        tenants=shares,
        paused=opening.paused,
    )
    return PollView(
        snapshot=snapshot,
        time=time,
        limits=opening.limits,
        policies=policies,
        replacements=reported.replacements,
        ready=ready,
        fronts=fronts,
        waits_for_time=time.is_held_back and (opening.live_job_count > 0 or _any_block_waits()),
        last_index=opening.last_index,
    )


def read_reported(updates: Sequence[JobUpdate], worker: Worker, credential: str) -> Reported:
    """Read the jobs that a worker's request speaks of, and check its tokens and results. Needs nobody's turn."""
    if not updates:
        return Reported()
    jobs = {job.name: job for job in _reported_jobs(updates, worker)}
    reports, replacements = _read_reports(updates, jobs, worker, credential)
    return Reported(jobs=jobs, reports=reports, replacements=replacements)


def _own_limits(opening: PollOpening, tenants: Collection[TenantKey], jobs: Sequence[Job]) -> EffectiveLimits:
    """Return the limits set for lanes, for these tenants, for these jobs and their tenants."""
    names = {tenant for _, tenant in tenants} | {job.tenant for job in jobs}
    if not (names and opening.has_own_limits):
        return opening.everywhere
    return effective_limits(opening.time.now_ms, tenants=names, jobs={job.name for job in jobs})


def _any_block_waits() -> bool:
    return LevelQueue.objects.filter(block_count__gt=0).exists()


def _reported_jobs(updates: Sequence[JobUpdate], worker: Worker) -> list[Job]:
    names = tuple({update.job for update in updates})
    rows = read_rows(Job, JOB_COLUMNS, f"WHERE name IN {marks(names)} AND {HELD}", names)
    jobs = [Job.from_db(None, JOB_COLUMNS, (*row[:-1], json.loads(row[-1]))) for row in rows]
    workers = {None: None, worker.id: worker}
    if others := {job.worker_id for job in jobs} - workers.keys():
        workers |= Worker.objects.in_bulk(others)
    for job in jobs:
        job.worker = workers[job.worker_id]
    return jobs


def _held_jobs(worker: Worker, heard: int) -> list[Job]:
    """Return what the worker should know that it has. It only asks after an answer was lost."""
    if not heard:
        return []
    held = Job.objects.filter(state=JobState.LEASED, worker=worker, token__lte=heard).select_related("worker")
    return list(held.order_by("id")[:HELD_MAX])


def _read_reports(
    updates: Sequence[JobUpdate], jobs: dict[str, Job], worker: Worker, credential: str
) -> tuple[tuple[Report, ...], dict[str, Replacement]]:
    """Check tokens and results; return the reports and, for results that fit, what they replace."""
    codec = token_codec()
    tokens = [_decode(codec, update, credential) for update in updates]
    finished = [  # by a job's worker under its current token; what others say of its result is not even read
        job
        if update.status is UpdateStatus.SUCCESS
        and (job := jobs.get(update.job)) is not None
        and (job.token, job.worker_id) == (token, worker.id)
        else None
        for update, token in zip(updates, tokens, strict=True)
    ]
    sources = _sources_of(filter(None, finished))
    masks = job_masks({job.id: job.token for job in finished if job is not None})
    checked = [
        None if job is None else _accept_result(job, update, sources[job.id], masks[job.id])
        for update, job in zip(updates, finished, strict=True)
    ]
    taken = _taken_ids(checked)
    reports: list[Report] = []
    replacements: dict[str, Replacement] = {}
    for update, token, accepted in zip(updates, tokens, checked, strict=True):
        result, refusal = None, accepted if isinstance(accepted, FailureReason) else None
        if isinstance(accepted, _Accepted):
            ids = {(r.meta.shard, r.meta.id) for r in accepted.replacement.results}
            if known := ids & taken:
                refusal = _refusal(ResultRefused(f"block id {min(known)[1]!r} was accepted before"))
            else:
                result, replacements[update.job] = accepted.result, accepted.replacement
                taken |= ids  # of two results in one request only the first can have an id
        reports.append(Report(update=update, token=token, result=result, refusal=refusal))
    return tuple(reports), replacements


def _decode(codec: TokenCodec, update: JobUpdate, credential: str) -> int | None:
    try:
        return codec.decode(update.token, job=update.job, credential=credential)
    except InvalidToken:
        return None


def _sources_of(jobs: Iterable[Job]) -> dict[int, _Sources]:
    """Return, by job, the blocks that are live and owned by it."""
    sources = {job.id: _Sources() for job in jobs}
    if not sources:
        return sources
    with quick_cursor() as cursor:
        cursor.execute(_SOURCES.format(jobs=marks(list(sources))), [DATASET_PROFILES, *sources])
        rows = cursor.fetchall()
    for state, block_id, job_id, ulid, block_from, block_until, tenant, name, data_from, data_until in rows:
        if state != BlockState.OWNED:
            continue
        own = sources[job_id]
        own.rows[ulid] = block_id
        own.times += (block_from, block_until)
        if tenant is not None:
            own.datasets[block_id].add((tenant, name))
            own.times += (data_from, data_until)  # old writers' datasets may leave their block's time
    return sources


def _accept_result(job: Job, update: JobUpdate, sources: _Sources, masks: JobMasks) -> _Accepted | FailureReason:
    """Check a result against the index, but its ids against the ledger; return it, or why it cannot be accepted."""
    try:
        result = read_profile_result(update.result)
        facts = CompletionFacts(
            shard=job.shard,
            level=job.level,
            sources=tuple(ulid for ulid in job.spec["sources"] if ulid in sources.rows),
            datasets=frozenset().union(*sources.datasets.values()),
            min_time_ms=min(sources.times, default=0),
            max_time_ms=max(sources.times, default=0),
            is_rewrite=job.spec.get("is_rewrite", False),
            masks=masks.indexes,
            masked=frozenset(masks.masked),
        )
        registrations = _registrations(job, check_result(facts, result), result)
    except (LithifyError, KeyError) as error:
        return _refusal(error)
    tenants = {row: frozenset(tenant for tenant, _ in sources.datasets[row]) for row in sources.rows.values()}
    return _Accepted(result, Replacement(job_id=job.id, sources=tenants, results=registrations))


def _registrations(job: Job, metas: Sequence[BlockMeta], result: ProfileMergeResult) -> list[BlockRegistration]:
    registrations = [
        BlockRegistration(
            meta=meta,
            metadata=block.metadata,
            object_key=block.key,
            size_bytes=block.size,
            crc32c=block.crc32c,
            # The merge knows the delete requests of the moment when it was assigned, and no later ones.
            masks_applied=job.token,
        )
        for meta, block in zip(metas, result.blocks, strict=True)
    ]
    for registration in registrations:
        try:
            check_registration(registration, remembered_from_ms=None)
        except BlockRefused as error:
            raise ResultRefused(str(error)) from error
    return registrations


def _refusal(error: Exception) -> FailureReason:
    return FailureReason(error_class=type(error).__name__, message=str(error))


def _taken_ids(checked: Iterable[_Accepted | FailureReason | None]) -> set[tuple[int, str]]:
    """Return those of the results' ids, with their shards, that the ledger has."""
    accepted = [one for one in checked if isinstance(one, _Accepted)]
    ids = {registration.meta.id for one in accepted for registration in one.replacement.results}
    return set(read_rows(AcceptedId, ("shard", "ulid"), f"WHERE ulid IN {marks(ids)}", tuple(ids))) if ids else set()


def _assignable(request: PollRequest, opening: PollOpening) -> list[Job]:
    """Return the first jobs that wait, and the longest expired; named jobs are not assigned, so that many more."""
    jobs = open_to(Job.objects.all(), worker=request.worker, build=request.build) if opening.has_pins else Job.objects
    if opening.limits.policy == PolicyName.REFERENCE:  # it orders them by itself, so it has to see all
        return list(jobs.filter(state__in=(JobState.WAITING, JobState.LEASED)).select_related("worker"))
    count = request.capacity + len(request.updates)
    jobs = without_paused(jobs.all(), opening.paused, planning=False)
    found: list[Job] = []
    if opening.has_waiting:
        found += jobs.filter(state=JobState.WAITING).order_by("priority_ms", "name")[:count]
    if opening.has_expired:
        expired = jobs.filter(state=JobState.LEASED, lease_expires_ms__lt=opening.time.now_ms)
        found += expired.order_by("lease_expires_ms").select_related("worker")[: count + EXHAUSTED_MAX]
    return found


def _job_view(job: Job, own: EffectiveLimits) -> JobView:
    failures_max = own.value(LimitName.FAILURES_MAX, -1, lane=job.lane, tenant=job.tenant, job=job.name)
    return JobView(
        id=job.id,
        name=job.name,
        lane=job.lane,
        tenant=job.tenant,
        level=job.level,
        state=JobState(job.state),
        token=job.token,
        worker=job.worker.name if job.worker else "",
        lease_expires_ms=job.lease_expires_ms or 0,
        failures=job.failures,
        failures_max=None if failures_max < 0 else failures_max,
        added_at_ms=job.added_at_ms,
        priority_ms=job.priority_ms,
        size_bytes=job.source_bytes,
    )
