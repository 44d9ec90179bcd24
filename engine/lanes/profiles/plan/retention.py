"""Decide which data is past the retention of its tenant. No I/O.

The unit is a slice: the data of one tenant in one partition and shard. It is dropped if both hold for the moment
``now - retention``:

1. its newest data is strictly older;
2. its partition and the grace period after its end are over; late data may arrive until then.

Slices are judged independently. A tenant on hold or with unlimited retention loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

DAY_MS = 24 * 3600 * 1000
KEEP_DEFAULT_MS = 31 * DAY_MS
GRACE_MS = 6 * 3600 * 1000
SLICES_PER_RUN = 32
"""Maximum slices dropped per run; bounds the damage of a wrong clock or rule before it is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Retention after the end of data, by tenant or by default; 0 is unlimited. ``held`` tenants keep all data."""

    default_ms: int = KEEP_DEFAULT_MS
    tenants: Mapping[str, int] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    grace_ms: int = GRACE_MS

    def marker_ms(self, tenant: str, now_ms: int) -> int | None:
        """Return the time before which the tenant's data is past retention; None: never."""
        keep_ms = self.tenants.get(tenant, self.default_ms)
        return None if keep_ms == 0 or tenant in self.held else now_ms - keep_ms

    def newest_marker_ms(self, now_ms: int) -> int | None:
        """Return the newest marker of any tenant: newer slices need no check."""
        kept = [keep_ms for keep_ms in (self.default_ms, *self.tenants.values()) if keep_ms > 0]
        return now_ms - min(kept) if kept else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSlice:
    """A tenant's live data in one partition and shard; ``in_segments``: other tenants share its objects."""

    partition_start_ms: int
    partition_ms: int
    tenant: str
    shard: int
    max_time_ms: int
    in_segments: bool = False

    def order(self) -> tuple[int, int, str, int, bool, int]:
        when = (self.partition_start_ms, self.partition_ms)
        return (*when, self.tenant, self.shard, self.in_segments, self.max_time_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """The slices to drop, oldest first, and the number of due slices above the cap of one run."""

    expired: tuple[RetentionSlice, ...]
    left_for_later: int = 0


def is_expired(part: RetentionSlice, policy: RetentionPolicy, *, now_ms: int) -> bool:
    """Return whether a slice is completely past the retention of its tenant."""
    marker_ms = policy.marker_ms(part.tenant, now_ms)
    if marker_ms is None:
        return False
    sealed_at_ms = part.partition_start_ms + part.partition_ms + policy.grace_ms
    return part.max_time_ms < marker_ms and sealed_at_ms <= marker_ms


def plan_retention(
    slices: Iterable[RetentionSlice], policy: RetentionPolicy, *, now_ms: int, count_max: int = SLICES_PER_RUN
) -> RetentionPlan:
    """Return the slices to drop in this run; independent of the order of ``slices``."""
    expired = sorted((part for part in slices if is_expired(part, policy, now_ms=now_ms)), key=RetentionSlice.order)
    return RetentionPlan(expired=tuple(expired[:count_max]), left_for_later=max(0, len(expired) - count_max))
