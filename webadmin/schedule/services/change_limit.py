"""Set a limit for everything, a lane, a tenant or a job: until further notice, or for a limited time.

When a limited value expires, the previous one is in force again. Every value stays as history with actor and reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Q

from engine.schedule.limits import EffectiveLimits, LimitName, Scope, ScopeKind, SetLimit, check_limit
from engine.schedule.model import LIVE_STATES, JobState, ParkedKind
from webadmin.base.actions.action import ActionContext
from webadmin.schedule import queries
from webadmin.schedule.command_log import CommandTime, read_time
from webadmin.schedule.errors import DurationRefused
from webadmin.schedule.known_names import check_lane, scope_notes
from webadmin.schedule.models import Job, LogHead
from webadmin.schedule.operation_models import WHY_MAX, LimitChange
from webadmin.schedule.register import is_kind
from webadmin.schedule.services.operation import Operation, operation

DURATION_SECONDS_MAX = 30 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOutcome:
    """The outcome of a change of a limit, or of its dry run.

    ``before`` and ``after`` are the values in force for the scope. ``valid_until_ms`` is command time,
    ``valid_until_wall_ms`` the same moment in wall time if the service is not unavailable until then. ``command_index``
    is None for a dry run, and if the same value was in force already. ``notes`` are sentences about the consequences.
    """

    name: LimitName
    scope: Scope
    before: int
    after: int
    valid_until_ms: int | None
    is_dry_run: bool
    valid_until_wall_ms: int | None = None
    command_index: int | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for API and commands."""
        return {
            "limit": self.name.value,
            "scope": {"kind": self.scope.kind.value, "value": self.scope.value},
            "before": self.before,
            "after": self.after,
            "valid_until_ms": self.valid_until_wall_ms,
            "dry_run": self.is_dry_run,
            "command": self.command_index,
            "notes": list(self.notes),
        }


def change_limit(
    *, name: LimitName, scope: Scope, value: int | None, context: ActionContext, for_seconds: int | None = None
) -> LimitOutcome:
    """Set a limit; ``value`` None removes the scope's own value, so that the wider scope's value is in force.

    ``for_seconds`` is its duration in command time. Raises LimitRefused, ScopeRefused, DurationRefused.
    """
    check_limit(name, scope, value)
    check_lane(scope)
    if for_seconds is not None and not 0 < for_seconds <= DURATION_SECONDS_MAX:
        raise DurationRefused(f"{for_seconds} seconds: a limit can be set for 1 to {DURATION_SECONDS_MAX} seconds")
    if context.is_dry_run:
        return _preview(name, scope, value, read_time(), for_seconds, is_dry_run=True)
    with operation() as run:
        outcome = _preview(name, scope, value, run.time, for_seconds, is_dry_run=False)
        if _holds_already(outcome, value):
            return outcome
        index = _set(run, outcome, value, context)
    return replace(outcome, command_index=index)


def limit_in_force(name: LimitName, scope: Scope, now_ms: int) -> int:
    """Return the value in force for a scope, from whichever scope it was set."""
    return _value(_set_limits(name, scope, now_ms), name, scope, now_ms)


def _preview(
    name: LimitName, scope: Scope, value: int | None, time: CommandTime, for_seconds: int | None, *, is_dry_run: bool
) -> LimitOutcome:
    now_ms = time.now_ms
    changes = _set_limits(name, scope, now_ms)
    until = None if for_seconds is None else now_ms + for_seconds * 1000
    number = max((change.number for change in changes), default=0) + 1
    changed = [*changes, SetLimit(name=name, scope=scope, value=value, number=number, valid_until_ms=until)]
    if until is None:  # otherwise a value that expires later would reappear when this one is removed
        changed = [change for change in changed if change.scope != scope or change.number == number]
    after = _value(changed, name, scope, now_ms)
    return LimitOutcome(
        name=name,
        scope=scope,
        before=_value(changes, name, scope, now_ms),
        after=after,
        valid_until_ms=until,
        valid_until_wall_ms=None if for_seconds is None else time.wall_ms + for_seconds * 1000,
        is_dry_run=is_dry_run,
        notes=(*scope_notes(scope), *_notes(name, scope, after)),
    )


def _set_limits(name: LimitName, scope: Scope, now_ms: int) -> list[SetLimit]:
    """Return the values set for a scope and for all wider ones."""
    wider = Q(scope_kind=ScopeKind.GLOBAL)
    for kind, value in _place(scope).items():
        wider |= Q(scope_kind=kind, scope_value=value)
    rows = LimitChange.objects.filter(wider, name=name, is_superseded=False).order_by("id")
    return [
        SetLimit(
            name=name,
            scope=Scope(ScopeKind(row.scope_kind), row.scope_value),
            value=row.value,
            number=row.id,
            valid_until_ms=row.valid_until_ms,
        )
        for row in rows
    ]


def _value(changes: list[SetLimit], name: LimitName, scope: Scope, now_ms: int) -> int:
    limits = EffectiveLimits.of(changes, now_ms=now_ms)
    return limits.value(name, queries.limit_default(name), **_place(scope))


def _place(scope: Scope) -> dict[str, str]:
    """Return the lane, tenant and job by which a scope's value is looked up."""
    if scope.kind is ScopeKind.GLOBAL:
        return {}
    if scope.kind is not ScopeKind.JOB:
        return {scope.kind.value: scope.value}
    around = Job.objects.filter(name=scope.value).order_by("-id").values("lane", "tenant").first()
    return {"job": scope.value} | ({"lane": around["lane"], "tenant": around["tenant"]} if around else {})


def _holds_already(outcome: LimitOutcome, value: int | None) -> bool:
    """Return whether the same value is already set for this very scope, both until further notice."""
    here = {"name": outcome.name, "scope_kind": outcome.scope.kind, "scope_value": outcome.scope.value}
    last = LimitChange.objects.filter(**here, is_superseded=False).order_by("-id").first()
    if last is None:
        return value is None
    return outcome.valid_until_ms is None and last.valid_until_ms is None and last.value == value


def _set(run: Operation, outcome: LimitOutcome, value: int | None, context: ActionContext) -> int:
    about = outcome.to_json() | {
        "value": value,
        "valid_until_ms": outcome.valid_until_ms,
        "valid_until_wall_ms": outcome.valid_until_wall_ms,
    }
    del about["command"], about["dry_run"], about["notes"]
    index = run.write("change_limit", context, target=f"{outcome.name} of {outcome.scope}", detail=about)
    here = LimitChange.objects.filter(
        name=outcome.name, scope_kind=outcome.scope.kind, scope_value=outcome.scope.value, is_superseded=False
    )
    is_for_good = outcome.valid_until_ms is None
    covered = here if is_for_good else here.filter(valid_until_ms__lte=run.time.now_ms)
    covered.update(is_superseded=True)
    LimitChange.objects.create(
        name=outcome.name,
        scope_kind=outcome.scope.kind,
        scope_value=outcome.scope.value,
        value=value,
        set_at_ms=run.time.now_ms,
        valid_until_ms=outcome.valid_until_ms,
        is_superseded=is_for_good and value is None,
        command_index=index,
        actor=context.actor,
        why=context.why[:WHY_MAX],
    )
    return index


def _notes(name: LimitName, scope: Scope, after: int) -> list[str]:
    """Return notes about the visible consequences."""
    notes = []
    if name is LimitName.FAILURES_MAX:
        jobs = _jobs_in(scope)
        again = jobs.filter(is_kind(ParkedKind.EVICTED), state=JobState.PARKED)
        if after and (count := jobs.filter(state__in=LIVE_STATES, failures__gte=after).count()):
            jobs_have, their = ("job has", "its") if count == 1 else ("jobs have", "their")
            notes.append(f"{count} scheduled {jobs_have} failed as often: {their} present run is {their} last")
        if count := (again.filter(failures__lt=after) if after else again).count():
            evicted, them = ("evicted job", "it") if count == 1 else ("evicted jobs", "them")
            notes.append(f"{count} {evicted} failed less often than that: requeue {them} to give {them} another run")
    live = LogHead.objects.values_list("live_job_count", flat=True).get()
    if name is LimitName.QUEUE_MAX and scope.kind is ScopeKind.GLOBAL and 0 < after < live:
        jobs_are = "job is" if live == 1 else "jobs are"
        notes.append(f"{live} {jobs_are} scheduled: none is added until fewer than {after} are left")
    return notes


def _jobs_in(scope: Scope) -> Any:
    column = {ScopeKind.LANE: "lane", ScopeKind.TENANT: "tenant", ScopeKind.JOB: "name"}.get(scope.kind)
    return Job.objects.filter(**{column: scope.value}) if column else Job.objects.all()
