"""The limits that an operator changes at run time: which there are, where each may be set, and which value is in force.

A value is set for a scope: everything, a lane, a tenant or one job. The narrowest scope that has a value wins, and in
one scope the value that was set last and has not run out. A value that runs out uncovers the one below it, so that
"ten failures for an hour" ends by itself.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.schedule.errors import LimitRefused, ScopeRefused

SCOPE_VALUE_MAX = 250
DAY_SECONDS = 86_400
BYTES_MAX = 1 << 50
"""A pebibyte: more than any merge or lane ever holds at once."""


class ScopeKind(enum.StrEnum):
    """How far a limit or a pause reaches."""

    GLOBAL = "global"  # everything on the schedule
    LANE = "lane"  # one kind of work
    TENANT = "tenant"  # one tenant's jobs ("" = those over segments)
    LEVEL = "level"  # one compaction level (pauses only)
    JOB = "job"  # one job, by name (limits only)


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """What a limit or pause holds for; ``value`` is the name of the lane, tenant or job, or the level."""

    kind: ScopeKind
    value: str = ""

    def __str__(self) -> str:
        if self.kind is ScopeKind.GLOBAL:
            return "everything"
        return f"{self.kind.value} {self.value or 'segments'}"


EVERYTHING = Scope(ScopeKind.GLOBAL)


def check_scope(scope: Scope) -> None:
    """Raise ScopeRefused unless the scope can be that of something; an unknown lane, tenant or job is no error."""
    is_named = {ScopeKind.GLOBAL: scope.value == "", ScopeKind.TENANT: True, ScopeKind.LEVEL: scope.value.isdecimal()}
    if len(scope.value) > SCOPE_VALUE_MAX or "\0" in scope.value or not is_named.get(scope.kind, scope.value != ""):
        raise ScopeRefused(f"a {scope.kind} cannot be {scope.value[:40]!r}: name the lane, tenant, level or job")


class LimitName(enum.StrEnum):
    """What can be limited; 0 means without limit, where 0 is allowed."""

    FAILURES_MAX = "failures_max"  # failures after which a job gets no further run
    QUEUE_MAX = "queue_max"  # scheduled jobs
    LEASE_SECONDS = "lease_seconds"  # how long a worker may be silent
    RUNNING_MAX = "running_max"  # capacity cap: jobs leased at the same time
    RUNNING_BYTES_MAX = "running_bytes_max"  # cost cap: source bytes of jobs leased at the same time
    WEIGHT = "weight"  # share of the fleet, in relation to the other lanes or tenants
    CLEANUP_DELAY_SECONDS = "cleanup_delay_seconds"  # between a block's replacement and its object's deletion
    TASK_MEMORY_BYTES = "task_memory_bytes"  # what one dataset merge may hold


@dataclass(frozen=True, slots=True)
class LimitRule:
    """Where a limit may be set, and between which values."""

    scopes: frozenset[ScopeKind]
    low: int
    high: int


_GLOBAL = frozenset({ScopeKind.GLOBAL})
_SHARES = frozenset({ScopeKind.LANE, ScopeKind.TENANT})
LIMIT_RULES: Mapping[LimitName, LimitRule] = {
    LimitName.FAILURES_MAX: LimitRule(_GLOBAL | _SHARES | {ScopeKind.JOB}, 0, 1_000),
    LimitName.QUEUE_MAX: LimitRule(_GLOBAL | {ScopeKind.LANE}, 0, 1_000_000),
    LimitName.LEASE_SECONDS: LimitRule(_GLOBAL, 1, 3_600),
    LimitName.RUNNING_MAX: LimitRule(_SHARES, 0, 1_000_000),
    LimitName.RUNNING_BYTES_MAX: LimitRule(_SHARES, 0, BYTES_MAX),
    LimitName.WEIGHT: LimitRule(_SHARES, 1, 10_000),
    LimitName.CLEANUP_DELAY_SECONDS: LimitRule(_GLOBAL, 0, 30 * DAY_SECONDS),
    LimitName.TASK_MEMORY_BYTES: LimitRule(_GLOBAL, 16 << 20, BYTES_MAX),
}


def check_limit(name: LimitName, scope: Scope, value: int | None) -> None:
    """Raise LimitRefused unless this limit may have this value there; None takes back what was set."""
    rule = LIMIT_RULES[name]
    if scope.kind not in rule.scopes:
        raise LimitRefused(f"{name} cannot be set for a {scope.kind}: set it for {', '.join(sorted(rule.scopes))}")
    check_scope(scope)
    if value is not None and not rule.low <= value <= rule.high:
        raise LimitRefused(f"{name} of {value} is outside {rule.low} to {rule.high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimit:
    """A value somebody set, in the order of ``number``; ``valid_until_ms`` None means until further notice."""

    name: LimitName
    scope: Scope
    value: int | None
    number: int
    valid_until_ms: int | None = None

    def is_valid(self, now_ms: int) -> bool:
        """Say whether the value has not run out; at the very moment of its end it has."""
        return self.valid_until_ms is None or now_ms < self.valid_until_ms


@dataclass(frozen=True, slots=True)
class EffectiveLimits:
    """The values in force at one moment."""

    values: Mapping[tuple[LimitName, Scope], int] = field(default_factory=dict)
    _names: frozenset[LimitName] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", frozenset(name for name, _ in self.values))

    @classmethod
    def of(cls, changes: Iterable[SetLimit], *, now_ms: int) -> EffectiveLimits:
        """Work out what is in force of everything that was set."""
        last: dict[tuple[LimitName, Scope], SetLimit] = {}
        for change in sorted(changes, key=lambda change: change.number):
            if change.is_valid(now_ms):
                last[change.name, change.scope] = change
        return cls({key: change.value for key, change in last.items() if change.value is not None})

    def value(
        self,
        name: LimitName,
        default: int,
        *,
        lane: str | None = None,
        tenant: str | None = None,
        job: str | None = None,
    ) -> int:
        """Return the value for a job, tenant or lane; ``default`` is that of everything, if nothing was set."""
        if name not in self._names:  # most are set for nobody
            return default
        narrowest_first = (
            Scope(kind, value)
            for kind, value in (
                (ScopeKind.JOB, job),
                (ScopeKind.TENANT, tenant),
                (ScopeKind.LANE, lane),
                (ScopeKind.GLOBAL, ""),
            )
            if value is not None
        )
        for scope in narrowest_first:
            if (name, scope) in self.values:
                return self.values[name, scope]
        return default
