"""Operators' actions on jobs, limits, pauses and stops of quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.protocol.fields import COUNT_MAX
from engine.protocol.wire import NAME_MAX
from engine.schedule.limits import LimitName, Scope, ScopeKind
from engine.schedule.model import HOLDING_STATES, LIVE_STATES, JobState, ParkedKind
from engine.schedule.pauses import PauseMode
from webadmin.base.actions.action import ActionContext, OperatorAction, Values
from webadmin.base.actions.fields import Choice, Number, Switch, Text
from webadmin.schedule.action_fields import JOBS, SCOPE
from webadmin.schedule.api import operation_serializers as shapes
from webadmin.schedule.models import LANE_MAX, Job
from webadmin.schedule.operation_models import PLACE_MAX, IsolationStop, Pause
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.adjust_jobs import pin, reset_failures, unpin
from webadmin.schedule.services.cancel_jobs import cancel
from webadmin.schedule.services.change_limit import DURATION_SECONDS_MAX, change_limit
from webadmin.schedule.services.operation import OperationOutcome
from webadmin.schedule.services.pause_schedule import pause, resume
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.services.return_job_blocks import return_job_blocks
from webadmin.schedule.services.stop_isolation import decide_isolation

HOUR_SECONDS = 3_600
FOR_SECONDS = Number(
    "for_seconds",
    "For seconds",
    "After that the previous state is in force again. Empty: until further notice.",
    low=1,
    high=DURATION_SECONDS_MAX,
)


def _named(jobs: Sequence[Job]) -> list[Values]:
    return [{"filter": JobFilter(names=tuple(job.name for job in jobs))}]


def _requeue(values: Values, context: ActionContext) -> OperationOutcome:
    wanted: JobFilter = values["filter"]
    wanted.check()
    if wanted.kind is None and not wanted.names:
        wanted = replace(wanted, kind=ParkedKind.EVICTED)
    options = {name: values[name] for name in ("newer_build_only", "keep_failures")}
    return requeue(wanted, context=context, **options)


def _scopes(rows: Sequence[Pause]) -> list[Values]:
    return [{"scope": Scope(ScopeKind(row.scope_kind), row.scope_value)} for row in rows if row.ended_at_ms is None]


def _resumed(outcomes: Sequence[Any], is_dry_run: bool) -> dict[str, Any]:
    return {"changed": [str(outcome.scope) for outcome in outcomes], "left": []}


def _is_held(job: Job) -> bool:
    return job.state in HOLDING_STATES


def _can_run_again(job: Job) -> bool:
    return job.state == JobState.PARKED and job.parked_kind != ParkedKind.QUARANTINED


def _lasts(row: Any) -> bool:
    return row.ended_at_ms is None


CANCEL = OperatorAction(
    operation="cancel",
    label="Cancel",
    about="Parks jobs with their blocks until the jobs are requeued or the blocks are returned to their queues. A "
    "worker that runs one of the jobs stops it at its next poll.",
    targets=(JOBS,),
    apply=lambda values, context: cancel(values["filter"], context=context),
    of_rows=_named,
    fits=lambda job: job.state in LIVE_STATES,
)
RESET_FAILURES = OperatorAction(
    operation="reset_failures",
    label="Reset failures",
    about="Resets the failure counts of jobs to 0. Parked jobs stay parked.",
    targets=(JOBS,),
    apply=lambda values, context: reset_failures(values["filter"], context=context),
    of_rows=_named,
    fits=lambda job: job.failures > 0 and job.state in HOLDING_STATES,
)
PIN = OperatorAction(
    operation="pin",
    label="Pin to a worker",
    about="Restricts jobs to one worker, from their next assignment on.",
    targets=(JOBS,),
    fields=(
        Text(
            "worker",
            "Worker",
            "The only worker that the jobs are assigned to.",
            length_max=NAME_MAX,
            is_required=True,
        ),
    ),
    apply=lambda values, context: pin(values["filter"], worker=values["worker"], context=context),
    of_rows=_named,
    fits=_is_held,
)
UNPIN = OperatorAction(
    operation="unpin",
    label="Unpin",
    about="Removes the restriction of jobs to a worker or a newer build.",
    targets=(JOBS,),
    apply=lambda values, context: unpin(values["filter"], context=context),
    of_rows=_named,
    fits=_is_held,
)
REQUEUE = OperatorAction(
    operation="requeue",
    label="Requeue",
    about="Retries parked jobs with the same blocks. Quarantined jobs are skipped: release them from quarantine.",
    targets=(JOBS,),
    fields=(
        Switch("newer_build_only", "On a newer build only", "Only builds newer than every build that failed."),
        Switch("keep_failures", "Keep failure counts", "Otherwise the failure counts are reset to 0."),
    ),
    apply=_requeue,
    of_rows=_named,
    fits=_can_run_again,
)
REQUEUE_MANY = replace(
    REQUEUE,
    name="requeue-many",
    label="Requeue by filter",
    about="Retries all parked jobs that match the filter.",
    of_rows=None,
)
RETURN_BLOCKS = OperatorAction(
    operation="return_job_blocks",
    label="Return blocks to queues",
    about="Ends parked jobs and returns their blocks to their queues, from which they are planned again.",
    targets=(JOBS,),
    apply=lambda values, context: return_job_blocks(values["filter"], context=context),
    of_rows=_named,
    fits=_can_run_again,
)
SET_LIMIT = OperatorAction(
    name="set-limit",
    operation="change_limit",
    label="Set a limit",
    about="Sets a limit globally or for a lane, a tenant or a job, for a period or until further notice.",
    fields=(
        Choice(
            "limit",
            "Limit",
            choices=tuple((name.value, name.value.replace("_", " ")) for name in LimitName),
            make=LimitName,
            is_required=True,
        ),
        SCOPE,
        Number(
            "value",
            "Value",
            "Empty: remove the value; the wider scope's value then applies. 0: no limit, where allowed.",
            high=COUNT_MAX,
            is_required=True,
            is_nullable=True,
        ),
        replace(FOR_SECONDS, initial=HOUR_SECONDS),
    ),
    apply=lambda values, context: change_limit(
        name=values["limit"], **{name: values[name] for name in ("scope", "value", "for_seconds")}, context=context
    ),
    outcome=shapes.LimitOutcomeSerializer,
)
PAUSE = OperatorAction(
    operation="pause",
    label="Pause or drain",
    about="Stops planning and assignment in a scope. Running jobs continue: their workers renew and report.",
    fields=(
        SCOPE,
        Choice(
            "mode",
            "How",
            choices=(
                (PauseMode.PAUSE.value, "pause: plan nothing, assign nothing; running jobs continue"),
                (PauseMode.DRAIN.value, "drain: plan nothing; jobs already planned are still run"),
            ),
            make=PauseMode,
            default=PauseMode.PAUSE,
        ),
        FOR_SECONDS,
    ),
    apply=lambda values, context: pause(**values, context=context),
    outcome=shapes.PauseOutcomeSerializer,
)
RESUME = OperatorAction(
    operation="resume",
    label="Resume",
    about="Ends the pause of the scope. Pauses of wider scopes stay in force.",
    targets=(SCOPE,),
    apply=lambda values, context: resume(**values, context=context),
    outcome=shapes.PauseOutcomeSerializer,
    of_rows=_scopes,
    fits=_lasts,
    describe=_resumed,
)
DECIDE = OperatorAction(
    name="decide",
    operation="decide_isolation",
    label="Decide",
    about="Ends the stop. Check the object store first: read one of the objects with another tool. Retrying "
    "requeues all parked jobs of the place and releases sources quarantined in the hour before the stop.",
    targets=(
        Text("lane", "Lane", "A lane's name.", length_max=LANE_MAX, is_required=True),
        Text("place", "Place", "Table, tenant of a bucket, or empty.", length_max=PLACE_MAX),
    ),
    fields=(
        Choice(
            "decision",
            "Decision",
            choices=tuple((value, str(label)) for value, label in IsolationStop.Decision.choices),
            make=IsolationStop.Decision,
            is_required=True,
        ),
    ),
    apply=lambda values, context: decide_isolation(
        values["lane"], values["place"], values["decision"], context=context
    ),
    outcome=shapes.QuarantineDecisionSerializer,
    of_rows=lambda rows: [{"lane": row.lane, "place": row.place} for row in rows],
    fits=_lasts,
)

JOB_ACTIONS = (CANCEL, RESET_FAILURES, PIN, UNPIN)
PARKED_ACTIONS = (REQUEUE, RETURN_BLOCKS, RESET_FAILURES, PIN, REQUEUE_MANY)
ACTIONS = (REQUEUE, CANCEL, RETURN_BLOCKS, RESET_FAILURES, PIN, UNPIN, SET_LIMIT, PAUSE, RESUME, DECIDE)
