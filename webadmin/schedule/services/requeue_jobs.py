"""Requeue parked jobs: all, some, those of one error, or "on a newer build only".

Quarantined jobs are left: releasing them is an action of its own. The queue limit applies: jobs beyond it stay parked.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import Any

from django.db.models import BigIntegerField, F, Value
from django.db.models.functions import Least

from engine.schedule.model import JobState, ParkedKind
from engine.schedule.priority import FAILURE_DELAY_MAX_MS, FAILURE_DELAY_MS
from engine.schedule.progress import count_text
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.lanes import by_lane, lane_of
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.operation_models import WHY_MAX, JobPin
from webadmin.schedule.register import BAD_OUTCOMES, JobFilter, is_kind
from webadmin.schedule.services.operation import (
    QUEUE_IS_FULL,
    Chosen,
    JobAction,
    Operation,
    OperationOutcome,
    change_jobs,
)


def requeue(
    wanted: JobFilter, *, context: ActionContext, newer_build_only: bool = False, keep_failures: bool = False
) -> OperationOutcome:
    """Requeue parked jobs, with their failures reset unless ``keep_failures``.

    ``newer_build_only`` pins them to workers of newer builds than all on which they have failed. Raises FilterEmpty.
    """
    outcome = change_jobs(
        JobAction(
            action="requeue",
            among=Job.objects.filter(state=JobState.PARKED),
            their_state="parked",
            choose=_choose,
            change=partial(put_back, context=context, newer_build_only=newer_build_only, keep_failures=keep_failures),
            detail={"newer_build_only": newer_build_only, "keep_failures": keep_failures},
        ),
        wanted,
        context,
    )
    return replace(outcome, notes=_not_covered(wanted))


def _not_covered(wanted: JobFilter) -> tuple[str, ...]:
    """Return the parked jobs that match the filter except for its kind, as notes."""
    if wanted.names or wanted.kind is None:
        return ()
    parked = replace(wanted, kind=None, everything=True).apply(Job.objects.filter(state=JobState.PARKED))
    others = {
        ParkedKind.EVICTED: "requeue them",
        ParkedKind.DEFERRED: "requeue them as deferred jobs",
        ParkedKind.QUARANTINED: "release their blocks from quarantine",
    }
    return tuple(
        f"{count_text(count, f'{kind.value} job')} not included: {remedy}"
        for kind, remedy in others.items()
        if kind is not wanted.kind and (count := parked.filter(is_kind(kind)).count())
    )


def _choose(jobs: list[Job], room: int) -> Chosen:
    chosen: list[Job] = []
    left: list[tuple[str, str]] = []
    holding = {job_id for lane, own in by_lane(jobs).items() for job_id in lane_of(lane).holding(own)}
    for job in jobs:
        if job.parked_kind == ParkedKind.QUARANTINED:
            left.append((job.name, "it is quarantined: release it"))
        elif job.id not in holding:
            left.append((job.name, "it has no blocks left: return its blocks to their queues to end it"))
        elif len(chosen) >= room:
            left.append((job.name, QUEUE_IS_FULL))
        else:
            chosen.append(job)
    return chosen, left


def put_back(
    run: Operation,
    jobs: list[Job],
    *,
    context: ActionContext,
    newer_build_only: bool = False,
    keep_failures: bool = False,
) -> None:
    """Requeue these parked jobs, inside an operation that has written its entry."""
    columns = {} if keep_failures else failures_forgotten()
    back = Job.objects.filter(id__in=[job.id for job in jobs], state=JobState.PARKED)
    run.live_jobs += back.update(state=JobState.WAITING, parked_kind="", parked_reason="", progress=None, **columns)
    JobPin.objects.filter(job__in=jobs, kind__in=[JobPin.Kind.NEWER_THAN, JobPin.Kind.NOT_BUILD]).delete()
    if newer_build_only:
        pins = [
            JobPin(
                job_id=job_id,
                kind=JobPin.Kind.NEWER_THAN,
                value=build,
                command_index=run.index,
                actor=context.actor,
                why=context.why[:WHY_MAX],
            )
            for job_id, builds in failed_builds(jobs).items()
            for build in sorted(builds)
        ]
        JobPin.objects.bulk_create(pins)


def failures_forgotten() -> dict[str, Any]:
    """Return the columns of a job without failures: failures no longer lower its priority."""
    delay_ms = Least(F("failures") * FAILURE_DELAY_MS, Value(FAILURE_DELAY_MAX_MS), output_field=BigIntegerField())
    return {"failures": 0, "priority_ms": F("priority_ms") - delay_ms}


def failed_builds(jobs: list[Job]) -> dict[int, set[str]]:
    """Return the builds on which each job has failed, as the worker reported them; silent workers reported none."""
    builds: defaultdict[int, set[str]] = defaultdict(set)
    attempts = Attempt.objects.filter(job__in=jobs, outcome__in=BAD_OUTCOMES)
    for job_id, build in attempts.values_list("job_id", "build"):
        if build:
            builds[job_id].add(build)
    return builds
