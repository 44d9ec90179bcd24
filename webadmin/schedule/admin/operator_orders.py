"""The actions of operators in the admin on jobs, limits, pauses and stops of quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.schedule.limits import LIMIT_RULES, LimitName, Scope, ScopeKind
from engine.schedule.model import HOLDING_STATES, LIVE_STATES, JobState, ParkedKind
from engine.schedule.pauses import PauseMode
from webadmin.adminkit.order_fields import choice_field, number_field, switch_field, text_field
from webadmin.adminkit.orders import OperatorOrder, OrderForm, Outcome
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import IsolationStop, Pause
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.adjust_jobs import pin, reset_failures, unpin
from webadmin.schedule.services.cancel_jobs import cancel
from webadmin.schedule.services.change_limit import DURATION_SECONDS_MAX, change_limit
from webadmin.schedule.services.operation import Order
from webadmin.schedule.services.pause_schedule import pause, resume
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.services.return_job_blocks import return_job_blocks
from webadmin.schedule.services.stop_isolation import DecisionOutcome, decide_isolation

Values = Mapping[str, Any]
HOUR_SECONDS = 3_600


def _order(values: Values, actor: str, is_dry_run: bool) -> Order:
    return Order(actor=actor, why=values["why"], is_dry_run=is_dry_run)


def _named(jobs: Sequence[Job]) -> JobFilter:
    return JobFilter(names=tuple(job.name for job in jobs))


class RequeueForm(OrderForm):
    """The form of requeuing selected parked jobs."""

    newer_build_only = switch_field("On a newer build only", "Newer than every build on which they have failed.")
    keep_failures = switch_field(
        "Keep the failures", "Otherwise they are forgotten, and the job has all its runs again."
    )
    field_order: tuple[str, ...] = ("newer_build_only", "keep_failures", "why")


class RequeueManyForm(RequeueForm):
    """The form of requeuing parked jobs by a filter; a job must match all given fields."""

    error_class = text_field(  # type: ignore[assignment]  # a field leaves the class's attribute as it is
        "Error class", "Of the last attempt that ended badly, for example ChecksumMismatch.", 100
    )
    tenant = text_field("Tenant", "A tenant's name.", 150)
    level = number_field("Level", "0 is segments.", low=0, high=100)
    everything = switch_field("All of them", "Says that no filter is meant so.")
    deferred = switch_field("Deferred jobs instead", "Jobs that an operator set aside, instead of evicted ones.")
    field_order = (
        "error_class",
        "tenant",
        "level",
        "everything",
        "deferred",
        "newer_build_only",
        "keep_failures",
        "why",
    )


class DecisionForm(OrderForm):
    """The form of a decision about sources that could not be merged."""

    decision = choice_field("Decision", list(IsolationStop.Decision.choices))
    field_order = ("decision", "why")


class PinForm(OrderForm):
    """The form of pinning jobs to a worker."""

    worker = text_field("Worker", "The only worker that gets these jobs from now on.", 100, required=True)
    field_order = ("worker", "why")


SCOPES = {
    ScopeKind.GLOBAL: "everything",
    ScopeKind.LANE: "a lane",
    ScopeKind.TENANT: "a tenant",
    ScopeKind.LEVEL: "a level",
    ScopeKind.JOB: "a job",
}


class LimitForm(OrderForm):
    """The form of setting a limit: scope, value, duration."""

    name = choice_field("Limit", [(name.value, name.value.replace("_", " ")) for name in LimitName])
    scope_kind = choice_field("For", [(kind.value, SCOPES[kind]) for kind in ScopeKind if kind is not ScopeKind.LEVEL])
    scope_value = text_field("Which", "The lane, tenant (empty: segments) or job; nothing for everything.")
    value = number_field(
        "Value",
        "Empty takes back what was set there, so that the wider scope's value holds. 0 is no limit, where allowed.",
        low=0,
        high=max(rule.high for rule in LIMIT_RULES.values()),
    )
    for_seconds = number_field(
        "For seconds",
        "After that what held before holds again by itself. Empty: until further notice.",
        low=1,
        high=DURATION_SECONDS_MAX,
        initial=HOUR_SECONDS,
    )
    field_order = ("name", "scope_kind", "scope_value", "value", "for_seconds", "why")


class PauseForm(OrderForm):
    """The form of a pause: scope, mode, duration."""

    scope_kind = choice_field("What", [(kind.value, SCOPES[kind]) for kind in ScopeKind if kind is not ScopeKind.JOB])
    scope_value = text_field("Which", "The lane, tenant (empty: segments) or level; nothing for everything.")
    mode = choice_field(
        "How",
        [
            (PauseMode.PAUSE.value, "pause: plan nothing, assign nothing; running jobs go on"),
            (PauseMode.DRAIN.value, "drain: plan nothing; what is scheduled is still done"),
        ],
    )
    for_seconds = number_field("For seconds", "Empty: until somebody resumes it.", low=1, high=DURATION_SECONDS_MAX)
    field_order = ("scope_kind", "scope_value", "mode", "for_seconds", "why")


def _requeue(rows: Sequence[Job], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    return _requeue_by(_named(rows), values, actor, is_dry_run)


def _requeue_many(rows: Sequence[Job], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    wanted = JobFilter(
        error_class=values["error_class"] or None,
        tenant=values["tenant"] or None,
        level=values["level"],
        everything=values["everything"],
    )
    wanted.check()
    wanted = replace(wanted, kind=ParkedKind.DEFERRED if values["deferred"] else ParkedKind.EVICTED)
    return _requeue_by(wanted, values, actor, is_dry_run)


def _requeue_by(wanted: JobFilter, values: Values, actor: str, is_dry_run: bool) -> Outcome:
    return requeue(
        wanted,
        order=_order(values, actor, is_dry_run),
        newer_build_only=values["newer_build_only"],
        keep_failures=values["keep_failures"],
    )


def _limit(rows: Sequence[object], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    return change_limit(
        name=LimitName(values["name"]),
        scope=Scope(ScopeKind(values["scope_kind"]), values["scope_value"]),
        value=values["value"],
        for_seconds=values["for_seconds"],
        order=_order(values, actor, is_dry_run),
    )


def _pause(rows: Sequence[object], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    return pause(
        scope=Scope(ScopeKind(values["scope_kind"]), values["scope_value"]),
        mode=PauseMode(values["mode"]),
        for_seconds=values["for_seconds"],
        order=_order(values, actor, is_dry_run),
    )


class _Resumed:
    """The outcomes of resuming several scopes as one."""

    def __init__(self, outcomes: Sequence[Any]) -> None:
        self._outcomes = outcomes

    def to_json(self) -> dict[str, Any]:
        """Return the resumed scopes as a list."""
        return {"changed": [str(one.scope) for one in self._outcomes], "left": []}


class _Decided:
    """The outcomes of decisions about several lanes as one."""

    def __init__(self, outcomes: Sequence[DecisionOutcome]) -> None:
        self._outcomes = [outcome.to_json() for outcome in outcomes]

    def to_json(self) -> dict[str, Any]:
        """Return all changed and all unchanged objects."""
        lists = ("changed", "left", "commands", "notes")
        return {name: [each for one in self._outcomes for each in one[name]] for name in lists}


def _resume(rows: Sequence[Pause], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    order = _order(values, actor, is_dry_run)
    scopes = [Scope(ScopeKind(row.scope_kind), row.scope_value) for row in rows if row.ended_at_ms is None]
    return _Resumed([resume(scope=scope, order=order) for scope in scopes])


def _decide(rows: Sequence[IsolationStop], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    decision, order = IsolationStop.Decision(values["decision"]), _order(values, actor, is_dry_run)
    return _Decided([decide_isolation(row.lane, row.place, decision, order=order) for row in rows])


CANCEL = OperatorOrder(
    name="cancel",
    label="Set aside",
    about="Takes jobs out of the schedule. They keep their blocks, parked, until they are requeued or given back; a "
    "worker that runs one stops at its next poll.",
    give=lambda rows, values, actor, dry: cancel(_named(rows), order=_order(values, actor, dry)),
    fits=lambda job: job.state in LIVE_STATES,
)
RESET_FAILURES = OperatorOrder(
    name="reset-failures",
    label="Forget failures",
    about="Sets the failures of jobs to zero, so that they have all their runs again. Parked jobs stay parked.",
    give=lambda rows, values, actor, dry: reset_failures(_named(rows), order=_order(values, actor, dry)),
    fits=lambda job: job.failures > 0 and job.state in HOLDING_STATES,
)
PIN = OperatorOrder(
    name="pin",
    label="Pin to a worker",
    about="From their next assignment on only one worker gets these jobs: to watch one closely, say.",
    form=PinForm,
    give=lambda rows, values, actor, dry: pin(_named(rows), worker=values["worker"], order=_order(values, actor, dry)),
    fits=lambda job: job.state in HOLDING_STATES,
)
UNPIN = OperatorOrder(
    name="unpin",
    label="Unpin",
    about="Lets any worker of any build run these jobs again.",
    give=lambda rows, values, actor, dry: unpin(_named(rows), order=_order(values, actor, dry)),
    fits=lambda job: job.state in HOLDING_STATES,
)
REQUEUE = OperatorOrder(
    name="requeue",
    label="Requeue",
    about="Gives parked jobs another chance, with the same blocks. Quarantined ones are left: release them instead.",
    form=RequeueForm,
    give=_requeue,
    fits=lambda job: job.state == JobState.PARKED and job.parked_kind != ParkedKind.QUARANTINED,
)
REQUEUE_MANY = OperatorOrder(
    name="requeue-many",
    label="Requeue by filter",
    about="Gives another chance to all evicted jobs that fit what is given here.",
    form=RequeueManyForm,
    give=_requeue_many,
    of_rows=False,
)
GIVE_BACK = OperatorOrder(
    name="give-blocks-back",
    label="Give blocks back",
    about="Ends parked jobs and returns their blocks to their queues, where they are planned anew, with others.",
    give=lambda rows, values, actor, dry: return_job_blocks(_named(rows), order=_order(values, actor, dry)),
    fits=lambda job: job.state == JobState.PARKED and job.parked_kind != ParkedKind.QUARANTINED,
)
SET_LIMIT = OperatorOrder(
    name="set-limit",
    label="Set a limit",
    about="Sets a limit for everything, a lane, a tenant or a job, for some time or until further notice.",
    form=LimitForm,
    give=_limit,
    of_rows=False,
)
PAUSE = OperatorOrder(
    name="pause",
    label="Pause or drain",
    about="Holds a part of the schedule still. Running jobs are never touched: their workers renew and report.",
    form=PauseForm,
    give=_pause,
    of_rows=False,
)
RESUME = OperatorOrder(
    name="resume",
    label="Resume",
    about="Lets the scope go on. A wider pause that covers it still holds.",
    give=_resume,
    fits=lambda row: row.ended_at_ms is None,
)
DECIDE = OperatorOrder(
    name="decide",
    label="Decide",
    about="Ends the stop. Check the object store first: read one of the objects with another tool. Trying again "
    "requeues all evicted jobs of the place and releases what was kept out in the hour before the stop.",
    form=DecisionForm,
    give=_decide,
    fits=lambda row: row.ended_at_ms is None,
)

JOB_ORDERS = (CANCEL, RESET_FAILURES, PIN, UNPIN)
PARKED_ORDERS = (REQUEUE, GIVE_BACK, RESET_FAILURES, PIN, REQUEUE_MANY)
