"""Limits that an operator changes at run time: names, allowed scopes and ranges, and the effective value.

A value is set for a scope: everything, a lane, a tenant or a job. The narrowest scope with a value takes precedence,
and within a scope the value that was set last and has not expired. When a value expires, the previous one applies
again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.schedule.errors import LimitRefused, ScopeRefused

SCOPE_VALUE_MAX = 250
DAY_SECONDS = 86_400
BYTES_MAX = 1 << 50
"""Upper bound of limits in bytes: one pebibyte."""


class ScopeKind(enum.StrEnum):
    """Kind of scope of a limit or a pause."""

    GLOBAL = "global"  # the whole schedule
    LANE = "lane"  # one lane
    TENANT = "tenant"  # the jobs of one tenant ("" = jobs over segments)
    LEVEL = "level"  # one compaction level (pauses only)
    JOB = "job"  # one job, by name (limits only)


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """The scope of a limit or pause; ``value`` is the name of the lane, tenant or job, or the level."""

    kind: ScopeKind
    value: str = ""

    def __str__(self) -> str:
        if self.kind is ScopeKind.GLOBAL:
            return "everything"
        return f"{self.kind.value} {self.value or 'segments'}"


EVERYTHING = Scope(ScopeKind.GLOBAL)


def check_scope(scope: Scope) -> None:
    """Raise ScopeRefused if the scope is malformed; an unknown lane, tenant or job is not an error."""
    is_named = {ScopeKind.GLOBAL: scope.value == "", ScopeKind.TENANT: True, ScopeKind.LEVEL: scope.value.isdecimal()}
    if len(scope.value) > SCOPE_VALUE_MAX or "\0" in scope.value or not is_named.get(scope.kind, scope.value != ""):
        raise ScopeRefused(f"a {scope.kind} cannot be {scope.value[:40]!r}: name the lane, tenant, level or job")


class LimitName(enum.StrEnum):
    """Names of limits; 0 means unlimited where it is allowed."""

    FAILURES_MAX = "failures_max"  # failures after which a job is not run again
    QUEUE_MAX = "queue_max"  # scheduled jobs
    LEASE_SECONDS = "lease_seconds"  # duration of a lease without renewal
    RUNNING_MAX = "running_max"  # capacity cap: jobs leased at the same time
    RUNNING_BYTES_MAX = "running_bytes_max"  # cost cap: source bytes of jobs leased at the same time
    WEIGHT = "weight"  # share of the fleet relative to the other lanes or tenants
    CLEANUP_DELAY_SECONDS = "cleanup_delay_seconds"  # between a block's replacement and its object's deletion
    TASK_MEMORY_BYTES = "task_memory_bytes"  # memory of one dataset merge


@dataclass(frozen=True, slots=True)
class LimitRule:
    """The scopes at which a limit may be set, and its range (inclusive)."""

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
    """Raise LimitRefused unless the limit may have this value at this scope; None removes the value."""
    rule = LIMIT_RULES[name]
    if scope.kind not in rule.scopes:
        raise LimitRefused(f"{name} cannot be set for a {scope.kind}: set it for {', '.join(sorted(rule.scopes))}")
    check_scope(scope)
    if value is not None and not rule.low <= value <= rule.high:
        raise LimitRefused(f"{name} of {value} is outside {rule.low} to {rule.high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimit:
    """A value that was set; higher ``number`` is later. ``valid_until_ms`` None means without expiry."""

    name: LimitName
    scope: Scope
    value: int | None
    number: int
    valid_until_ms: int | None = None

    def is_valid(self, now_ms: int) -> bool:
        """Return whether the value has not expired; ``valid_until_ms`` itself is excluded."""
        return self.valid_until_ms is None or now_ms < self.valid_until_ms


@dataclass(frozen=True, slots=True)
class EffectiveLimits:
    """The effective values at one moment."""

    values: Mapping[tuple[LimitName, Scope], int] = field(default_factory=dict)
    _names: frozenset[LimitName] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", frozenset(name for name, _ in self.values))

    @classmethod
    def of(cls, changes: Iterable[SetLimit], *, now_ms: int) -> EffectiveLimits:
        """Return the effective values of all changes."""
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
        """Return the effective value for a job, tenant or lane, or ``default`` if none was set."""
        if name not in self._names:  # fast path: most limits are not set
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
