"""Pause a part of the schedule, and resume it. Running jobs are not affected: workers renew and report.

A pause may expire; resuming what is not paused changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.schedule.errors import ScopeRefused
from engine.schedule.limits import Scope, ScopeKind, check_scope
from engine.schedule.model import JobState
from engine.schedule.pauses import PauseMode
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.command_log import CommandTime, read_time
from webadmin.schedule.errors import DurationRefused
from webadmin.schedule.known_names import check_lane, scope_notes
from webadmin.schedule.lanes import lanes
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import WHY_MAX, Pause
from webadmin.schedule.pauses import pauses_in_force
from webadmin.schedule.services.change_limit import DURATION_SECONDS_MAX
from webadmin.schedule.services.operation import operation

PauseEnd = tuple[int, int] | tuple[None, None]
"""When a pause ends, in command time and in wall time."""
FURTHER_NOTICE: PauseEnd = (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOutcome:
    """The outcome of a pause or resumption, or of its dry run.

    ``valid_until_ms`` is command time, ``valid_until_wall_ms`` the same moment in wall time if the service is not
    unavailable until then. ``waiting_jobs`` and ``queued_blocks`` are counts of the scope now; ``command_index`` is
    None for a dry run, and if nothing had to be changed.
    """

    scope: Scope
    mode: PauseMode | None
    valid_until_ms: int | None
    is_dry_run: bool
    valid_until_wall_ms: int | None
    waiting_jobs: int
    queued_blocks: int
    command_index: int | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for API and commands; ``mode`` is null after a resumption."""
        return {
            "scope": {"kind": self.scope.kind.value, "value": self.scope.value},
            "mode": self.mode.value if self.mode else None,
            "valid_until_ms": self.valid_until_wall_ms,
            "dry_run": self.is_dry_run,
            "waiting_jobs": self.waiting_jobs,
            "queued_blocks": self.queued_blocks,
            "command": self.command_index,
            "notes": list(self.notes),
        }


def pause(
    *, scope: Scope, context: ActionContext, mode: PauseMode = PauseMode.PAUSE, for_seconds: int | None = None
) -> PauseOutcome:
    """Pause or drain a scope until it is resumed, or for ``for_seconds``. Raises ScopeRefused, DurationRefused."""
    _check(scope)
    if for_seconds is not None and not 0 < for_seconds <= DURATION_SECONDS_MAX:
        raise DurationRefused(f"{for_seconds} seconds: a pause lasts 1 to {DURATION_SECONDS_MAX} seconds")
    if context.is_dry_run:
        return _outcome(scope, mode, _end_of(read_time(), for_seconds), context, None)
    with operation() as run:
        now_ms, end = run.time.now_ms, _end_of(run.time, for_seconds)
        until = end[0]
        same = pauses_in_force(now_ms).filter(
            scope_kind=scope.kind, scope_value=scope.value, mode=mode, valid_until_ms=until
        )
        index = None
        if not same.exists():
            about = {"scope": {"kind": scope.kind, "value": scope.value}, "mode": mode, "valid_until_ms": until}
            index = run.write("pause", context, target=str(scope), detail=about)
            _end(scope, now_ms, context.actor)
            Pause.objects.create(
                scope_kind=scope.kind,
                scope_value=scope.value,
                mode=mode,
                since_ms=now_ms,
                valid_until_ms=until,
                command_index=index,
                actor=context.actor,
                why=context.why[:WHY_MAX],
            )
    return _outcome(scope, mode, end, context, index)


def resume(*, scope: Scope, context: ActionContext) -> PauseOutcome:
    """Resume a scope. A wider pause that covers it stays in force. Raises ScopeRefused."""
    _check(scope)
    if context.is_dry_run:
        return _outcome(scope, None, FURTHER_NOTICE, context, None)
    with operation() as run:
        index = None
        paused = pauses_in_force(run.time.now_ms).filter(scope_kind=scope.kind, scope_value=scope.value)
        if paused.exists():
            about = {"scope": {"kind": scope.kind, "value": scope.value}}
            index = run.write("resume", context, target=str(scope), detail=about)
            _end(scope, run.time.now_ms, context.actor)
    return _outcome(scope, None, FURTHER_NOTICE, context, index)


def _check(scope: Scope) -> None:
    if scope.kind is ScopeKind.JOB:
        raise ScopeRefused("a single job cannot be paused: set it aside (cancel), and requeue it later")
    check_scope(scope)
    check_lane(scope)


def _end_of(time: CommandTime, for_seconds: int | None) -> PauseEnd:
    if for_seconds is None:
        return FURTHER_NOTICE
    return time.now_ms + for_seconds * 1000, time.wall_ms + for_seconds * 1000


def _end(scope: Scope, now_ms: int, actor: str) -> None:
    active = Pause.objects.filter(scope_kind=scope.kind, scope_value=scope.value, ended_at_ms=None)
    active.update(ended_at_ms=now_ms, ended_by=actor)


def _outcome(
    scope: Scope, mode: PauseMode | None, end: PauseEnd, context: ActionContext, index: int | None
) -> PauseOutcome:
    place = {} if scope.kind is ScopeKind.GLOBAL else {scope.kind.value: scope.value}
    now_ms = read_time().now_ms
    return PauseOutcome(
        scope=scope,
        mode=mode,
        valid_until_ms=end[0],
        valid_until_wall_ms=end[1],
        is_dry_run=context.is_dry_run,
        waiting_jobs=Job.objects.filter(**place, state=JobState.WAITING).count(),
        queued_blocks=sum(lane.queued(scope, now_ms).count for lane in lanes()),
        command_index=index,
        notes=scope_notes(scope),
    )
