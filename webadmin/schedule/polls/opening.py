"""The first statement of every poll: the head of the log, the limits, and whether there is work."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.schedule.limits import EffectiveLimits, LimitName, Scope, ScopeKind, SetLimit
from engine.schedule.pauses import PausedScope
from webadmin.base.database.columns import rows_column
from webadmin.base.database.dialect import execute_deferred
from webadmin.schedule.command_log import HEAD_COLUMN_COUNT, HEAD_TABLES, CommandTime, head_columns, head_of
from webadmin.schedule.lanes import lanes
from webadmin.schedule.models import Limits
from webadmin.schedule.pauses import paused_scopes
from webadmin.schedule.queries import limits_in_force

_LIMITS = (
    "lease_seconds",
    "failures_max",
    "queue_max",
    "cleanup_delay_seconds",
    "task_memory_bytes",
)
_OPENING = """
SELECT {head}, {limits},
       EXISTS (SELECT 1 FROM schedule_pause WHERE ended_at_ms IS NULL),
       EXISTS (SELECT 1 FROM schedule_limitchange WHERE NOT is_superseded AND scope_kind IN ('tenant', 'job')),
       EXISTS (SELECT 1 FROM schedule_job WHERE state = 'waiting' AND lane IN ({planned_by_polls})),
       EXISTS (SELECT 1 FROM schedule_job WHERE state = 'waiting' AND lane IN ({planned_ahead})),
       (SELECT min(lease_expires_ms) FROM schedule_job WHERE state = 'leased'),
       EXISTS (SELECT 1 FROM schedule_jobpin),
       {everywhere}{ready_work}
FROM {tables}
"""
_LIMIT_COLUMNS = ("id", "name", "scope_kind", "scope_value", "value", "valid_until_ms")
_EVERYWHERE = f"""
SELECT {", ".join(_LIMIT_COLUMNS)} FROM schedule_limitchange
WHERE NOT is_superseded AND scope_kind IN ('global', 'lane')
"""  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class PollOpening:
    """The global state that every poll reads.

    ``everywhere`` are the limits of everything and of lanes. ``has_own_limits``: tenants or jobs have limits.
    ``has_pins``: jobs are pinned. ``has_waiting_ahead`` is about jobs of lanes that plan ahead, ``has_waiting`` about
    the others. ``first_expiry_ms`` is the end of the first lease. ``ready_lanes`` have ready queues.
    """

    time: CommandTime
    last_index: int
    live_job_count: int
    limits: Limits
    everywhere: EffectiveLimits
    paused: tuple[PausedScope, ...]
    has_own_limits: bool
    has_waiting: bool
    has_waiting_ahead: bool
    has_pins: bool
    first_expiry_ms: int | None
    ready_lanes: tuple[str, ...]

    @property
    def has_expired(self) -> bool:
        """Whether the lease of any job has expired."""
        return self.first_expiry_ms is not None and self.first_expiry_ms < self.time.now_ms

    @property
    def has_work(self) -> bool:
        """Whether there could be a job for a worker with capacity."""
        return self.has_waiting or self.has_waiting_ahead or self.has_expired or bool(self.ready_lanes)


def open_poll() -> PollOpening:
    """Read the global state of a poll."""
    statement, queue_lanes = _opening(head_columns())
    [row] = execute_deferred(statement)()
    head, time = head_of(row[:HEAD_COLUMN_COUNT])
    row = row[HEAD_COLUMN_COUNT:]
    columns, flags = row[: len(_LIMITS)], row[len(_LIMITS) :]
    is_paused, has_own_limits, has_waiting, has_waiting_ahead, first_expiry_ms, has_pins, set_everywhere, *ready = flags
    everywhere = _everywhere(json.loads(set_everywhere), time.now_ms)
    return PollOpening(
        time=time,
        last_index=head.last_index,
        live_job_count=head.live_job_count,
        limits=limits_in_force(Limits(**dict(zip(_LIMITS, columns, strict=True))), everywhere),
        everywhere=everywhere,
        paused=paused_scopes(time.now_ms) if is_paused else (),
        has_own_limits=bool(has_own_limits),
        has_waiting=bool(has_waiting),
        has_waiting_ahead=bool(has_waiting_ahead),
        has_pins=bool(has_pins),
        first_expiry_ms=first_expiry_ms,
        ready_lanes=tuple(
            lane
            for lane, ready_ms in zip(queue_lanes, ready, strict=True)
            if ready_ms is not None and ready_ms <= time.now_ms
        ),
    )


@functools.lru_cache(maxsize=1)
def _opening(head: str) -> tuple[str, tuple[str, ...]]:
    """Return the statement with these columns of the head, and the lanes of its last columns, about ready queues.

    Names of lanes are part of the text: a cached plan knows no values.
    """
    names = {ahead: [repr(lane.name) for lane in lanes() if lane.plans_ahead is ahead] for ahead in (False, True)}
    ready = {lane.name: lane.ready_at_sql for lane in lanes() if lane.ready_at_sql}
    statement = _OPENING.format(
        head=head,
        limits=", ".join(f"l.{name}" for name in _LIMITS),
        tables=HEAD_TABLES,
        planned_by_polls=", ".join(names[False]) or "NULL",
        planned_ahead=", ".join(names[True]) or "NULL",
        everywhere=rows_column(_LIMIT_COLUMNS, _EVERYWHERE),
        ready_work="".join(f", ({sql})" for sql in ready.values()),
    )
    return statement, tuple(ready)


def _everywhere(rows: Iterable[Sequence[Any]], now_ms: int) -> EffectiveLimits:
    """Return the limits that are set for everything and for lanes."""
    return EffectiveLimits.of(
        [
            SetLimit(
                name=LimitName(name),
                scope=Scope(ScopeKind(kind), scope_value),
                value=value,
                number=number,
                valid_until_ms=valid_until_ms,
            )
            for number, name, kind, scope_value, value, valid_until_ms in rows
        ],
        now_ms=now_ms,
    )
