"""Apply the decisions of ``engine.schedule.isolation`` to all jobs parked for their failures.

All jobs are judged before anything is changed: if too many blocks are bad, isolation stops until an operator decides
(``IsolationStop``).

One command per job, so that the head is held shortly. Safe to repeat and to run concurrently: each command checks under
the head that its job is unchanged since it was judged; no worker can change it while it is parked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.lanes.profiles.jobs import KIND as PROFILES
from engine.schedule.isolation import (
    OBJECT_NOT_FOUND,
    Breakage,
    FailedRun,
    IsolationDecision,
    QuarantineBlock,
    QuarantineMissing,
    RetrySingle,
    Split,
    Suspect,
    Wait,
    judge,
    reports_missing_object,
)
from engine.schedule.model import JobState, ParkedKind
from engine.storage.model import ObjectNotFound, ObjectStore, StorageError
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.services.quarantine_blocks import quarantine, quarantine_reason
from webadmin.lanes.profiles.services.split_jobs import split_job
from webadmin.lanes.profiles.suspects import evicted_jobs, read_suspect, sources_of
from webadmin.schedule.breakages import merging_is_broken
from webadmin.schedule.errors import StaleSnapshot
from webadmin.schedule.isolation_stops import FoundBad, open_stop
from webadmin.schedule.models import Job
from webadmin.schedule.register import is_kind
from webadmin.schedule.services.operation import Operation, operation
from webadmin.schedule.services.requeue_jobs import put_back
from webadmin.schedule.services.stop_isolation import isolation_stop_reason

log = logging.getLogger(__name__)

ACTOR = "control:isolation"


@dataclass(slots=True, kw_only=True)
class IsolationOutcome:
    """Results for evicted jobs: split, quarantined with reasons, left parked with reasons, or run again alone.

    ``stop`` is the reason of a stop, "" if isolation continues.
    """

    breakages: tuple[Breakage, ...] = ()
    stop: str = ""
    split: list[str] = field(default_factory=list)
    quarantined: list[tuple[str, str]] = field(default_factory=list)
    waiting: list[tuple[str, str]] = field(default_factory=list)
    tried_again: list[str] = field(default_factory=list)


def isolate(*, store: ObjectStore, context: ActionContext | None = None) -> IsolationOutcome:
    """Take the next step of isolating bad blocks for every job that was parked for its failures."""
    context = context or ActionContext(actor=ACTOR, why="it failed too often")
    outcome = IsolationOutcome(breakages=merging_is_broken())
    judged = [_judged(job, store, outcome.breakages) for job in evicted_jobs()]
    outcome.stop = _stop(judged, context)
    for job, sources, suspect, decision in judged:
        if outcome.stop:
            decision = Wait(f"{outcome.stop}: an operator decides")
        if not isinstance(decision, Wait) and not context.is_dry_run:
            try:
                decision = _apply(job, sources, suspect, decision, context) or decision
            except StaleSnapshot as error:
                decision = Wait(str(error))
        _note(outcome, job, sources, decision)
    for name in outcome.split:
        log.info("job_split job=%s", name)
    for ulid, error_class in outcome.quarantined:
        log.warning("block_quarantined block=%s error=%s", ulid, error_class)
    return outcome


Judged = tuple[Job, Sequence[Block], Suspect, IsolationDecision]


def _judged(job: Job, store: ObjectStore, breakages: Sequence[Breakage]) -> Judged:
    sources = sources_of(job)
    suspect = read_suspect(job, sources)
    if reports_missing_object(suspect):
        suspect = replace(suspect, missing=_missing(store, suspect))
    return job, sources, suspect, judge(suspect, breakages)


def _stop(judged: Sequence[Judged], context: ActionContext) -> str:
    """Return why isolation is stopped, "" if it is not; stop it if this round would find too many bad blocks."""
    missing = [
        FoundBad(OBJECT_NOT_FOUND, sources[place].arrived_at_ms)
        for _, sources, _, decision in judged
        if isinstance(decision, QuarantineMissing)
        and len(sources) > 1  # a single block counts as one that failed alone
        for place in decision.positions
    ]
    return isolation_stop_reason(PROFILES, "", missing, context)


def _missing(store: ObjectStore, suspect: Suspect) -> frozenset[str]:
    """Return which of the objects the store does not have; none if the store fails."""
    missing = set()
    for key in suspect.keys:
        try:
            store.head(key)
        except ObjectNotFound:
            missing.add(key)
        except StorageError as error:
            log.warning("object_not_checked key=%s reason=%s", key, error)
    return frozenset(missing)


def _apply(
    job: Job, sources: Sequence[Block], suspect: Suspect, decision: IsolationDecision, context: ActionContext
) -> Wait | None:
    """Carry out a decision, or return why it has to wait."""
    parts = _parts(decision, sources)
    with operation() as run:
        if not Job.objects.filter(is_kind(ParkedKind.EVICTED), id=job.id, state=JobState.PARKED).exists():
            return Wait("it was changed concurrently")
        if open_stop(PROFILES, "") is not None:
            return Wait("isolation was stopped meanwhile")
        if run.room() < len(parts):
            return Wait("the queue is full")
        if isinstance(decision, RetrySingle):
            if not run.room():
                return Wait("the queue is full")
            detail = {"filter": {}, "jobs": [job.name], "newer_build_only": False, "keep_failures": True}
            run.write("requeue", context, target=job.name, detail=detail | {"because": decision.why})
            put_back(run, [job], context=context, keep_failures=True)
        elif isinstance(decision, QuarantineBlock):
            detail = {"jobs": [job.name], "block": sources[0].ulid, "build": decision.run.build}
            reason = quarantine_reason(Quarantine.Cause.DAMAGED, decision.run)
            run.write("quarantine", context, target=sources[0].ulid, detail=detail | {"parked_reason": reason})
            quarantine(run, job, sources[0], Quarantine.Cause.DAMAGED, decision.run, decision.attempts)
        else:
            split: dict[str, Any] = {"jobs": [job.name], "parts": [[block.ulid for block in part] for part in parts]}
            action = "set_missing_aside" if isinstance(decision, QuarantineMissing) else "split"
            if isinstance(decision, QuarantineMissing):
                reason = quarantine_reason(Quarantine.Cause.MISSING, _missing_run(decision))
                split["parked_reasons"] = [reason] * len(decision.positions)
            run.write(action, context, target=job.name, detail=split)
            children = split_job(run, job, parts, context) if len(sources) > 1 else [job]
            if isinstance(decision, QuarantineMissing):
                _keep_missing(run, children, parts, suspect, decision)
    return None


def _parts(decision: IsolationDecision, sources: Sequence[Block]) -> list[list[Block]]:
    """Return the blocks of the jobs to create; each missing block gets its own job, after the rest."""
    if isinstance(decision, Split):
        return [[sources[place] for place in part] for part in decision.parts]
    if isinstance(decision, QuarantineMissing):
        rest = [block for place, block in enumerate(sources) if place not in decision.positions]
        return [part for part in (rest, *([sources[place]] for place in decision.positions)) if part]
    return []


def _keep_missing(
    run: Operation, jobs: Sequence[Job], parts: Sequence[Sequence[Block]], suspect: Suspect, decision: QuarantineMissing
) -> None:
    for job, part in zip(jobs[-len(decision.positions) :], parts[-len(decision.positions) :], strict=True):
        [block] = part
        bad = replace(_missing_run(decision), object=block.object_key)
        quarantine(run, job, block, Quarantine.Cause.MISSING, bad, len(suspect.runs))


def _missing_run(decision: QuarantineMissing) -> FailedRun:
    return replace(decision.run, message="the store has no such object")


def _note(outcome: IsolationOutcome, job: Job, sources: Sequence[Block], decision: IsolationDecision) -> None:
    if isinstance(decision, RetrySingle):
        outcome.tried_again.append(job.name)
    elif isinstance(decision, Wait):
        outcome.waiting.append((job.name, decision.why))
    elif isinstance(decision, QuarantineBlock):
        outcome.quarantined.append((sources[0].ulid, decision.run.error_class))
    elif isinstance(decision, QuarantineMissing):
        outcome.quarantined += [(sources[place].ulid, decision.run.error_class) for place in decision.positions]
    else:
        outcome.split.append(job.name)
