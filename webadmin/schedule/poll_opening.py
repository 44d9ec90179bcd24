"""What every poll reads first, in one round trip: the time, the limits, and what else is worth asking.

Most polls find no pause, no limit of a tenant's own, no job that waits: they need not ask about each.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.schedule.limits import EffectiveLimits, LimitName, Scope, ScopeKind, SetLimit
from engine.schedule.pauses import PausedScope
from webadmin.base.database.columns import rows_column
from webadmin.base.database.dialect import ask
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
       EXISTS (SELECT 1 FROM schedule_levelpolicy WHERE tenant <> ''),
       EXISTS (SELECT 1 FROM schedule_job WHERE state = 'waiting' AND lane IN ({asked})),
       EXISTS (SELECT 1 FROM schedule_job WHERE state = 'waiting' AND lane IN ({ahead})),
       (SELECT min(lease_expires_ms) FROM schedule_job WHERE state = 'leased'),
       EXISTS (SELECT 1 FROM schedule_jobpin),
       EXISTS (SELECT 1 FROM schedule_tenantshare WHERE is_awake),
       (SELECT min(ready_at_ms) FROM schedule_levelqueue WHERE block_count > 0 AND NOT is_noticed),
       {everywhere}
FROM {tables}
"""
_LIMIT_COLUMNS = ("id", "name", "scope_kind", "scope_value", "value", "valid_until_ms")
_EVERYWHERE = f"""
SELECT {", ".join(_LIMIT_COLUMNS)} FROM schedule_limitchange
WHERE NOT is_superseded AND scope_kind IN ('global', 'lane')
"""  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class PollOpening:
    """What holds for everything. ``everywhere`` are the limits of everything and of lanes; ``has_own_limits`` says that
    tenants or jobs have some, ``has_own_policies`` that tenants have some, ``has_pins`` that jobs are pinned,
    ``has_awake`` that tenants have noticed queues. ``has_waiting_ahead`` is about jobs of lanes that plan ahead,
    ``has_waiting`` about the others. ``first_expiry_ms`` is the end of the first lease, ``first_ready_ms`` since when a
    queue waits to be noticed."""

    time: CommandTime
    last_index: int
    live_job_count: int
    limits: Limits
    everywhere: EffectiveLimits
    paused: tuple[PausedScope, ...]
    has_own_limits: bool
    has_own_policies: bool
    has_waiting: bool
    has_waiting_ahead: bool
    has_pins: bool
    has_awake: bool
    first_expiry_ms: int | None
    first_ready_ms: int | None

    @property
    def has_expired(self) -> bool:
        """Say whether the lease of any job is over."""
        return self.first_expiry_ms is not None and self.first_expiry_ms < self.time.now_ms

    @property
    def has_unnoticed(self) -> bool:
        """Say whether a queue is ready that nobody has noticed."""
        return self.first_ready_ms is not None and self.first_ready_ms <= self.time.now_ms

    @property
    def has_work(self) -> bool:
        """Say whether there could be a job for a worker with capacity."""
        return self.has_waiting or self.has_waiting_ahead or self.has_awake or self.has_expired or self.has_unnoticed


def open_poll() -> PollOpening:
    """Read what every poll begins with."""
    return ask_opening()()


def ask_opening() -> Callable[[], PollOpening]:
    """Ask for what every poll begins with."""
    opening = ask(_opening(head_columns()))
    return lambda: _answered(opening())


def _answered(rows: Sequence[tuple[Any, ...]]) -> PollOpening:
    [row] = rows
    head, time = head_of(row[:HEAD_COLUMN_COUNT])
    row = row[HEAD_COLUMN_COUNT:]
    columns, flags = row[: len(_LIMITS)], row[len(_LIMITS) :]
    is_paused, has_own_limits, has_own_policies, has_waiting, has_waiting_ahead, *flags = flags
    first_expiry_ms, has_pins, has_awake, first_ready_ms, set_everywhere = flags
    everywhere = _everywhere(json.loads(set_everywhere), time.now_ms)
    return PollOpening(
        time=time,
        last_index=head.last_index,
        live_job_count=head.live_job_count,
        limits=limits_in_force(Limits(**dict(zip(_LIMITS, columns, strict=True))), everywhere),
        everywhere=everywhere,
        paused=paused_scopes(time.now_ms) if is_paused else (),
        has_own_limits=bool(has_own_limits),
        has_own_policies=bool(has_own_policies),
        has_waiting=bool(has_waiting),
        has_waiting_ahead=bool(has_waiting_ahead),
        has_pins=bool(has_pins),
        has_awake=bool(has_awake),
        first_ready_ms=first_ready_ms,
        first_expiry_ms=first_expiry_ms,
    )


@functools.lru_cache(maxsize=1)
def _opening(head: str) -> str:
    """Return the statement that reads most of it, with these columns of the head. Names of lanes stand in it: a kept
    plan knows no values."""
    names = {ahead: [repr(lane.name) for lane in lanes() if lane.plans_ahead is ahead] for ahead in (False, True)}
    return _OPENING.format(
        head=head,
        limits=", ".join(f"l.{name}" for name in _LIMITS),
        tables=HEAD_TABLES,
        asked=", ".join(names[False]) or "NULL",
        ahead=", ".join(names[True]) or "NULL",
        everywhere=rows_column(_LIMIT_COLUMNS, _EVERYWHERE),
    )


def _everywhere(rows: Iterable[Sequence[Any]], now_ms: int) -> EffectiveLimits:
    """Return what is set for everything and for any lane; as ``queries.effective_limits``, for less."""
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
