"""Rate limits and active series by tenant, as seen by one web process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from webadmin.ingest.tenant_limits import TenantPushLimits

TENANTS_MAX = 10_000
"""Maximum tenants with a budget of their own."""
SHARED = ""
"""Name of the budget that all other tenants share; not a valid name of a tenant."""
SWEEP_S = 1.0
"""Minimum seconds between two sweeps for idle entries, because each sweep reads all tenants."""
SERIES_ACTIVE_S = 1800.0
"""Length of an activity window in seconds; a series without pushes for one to two windows is inactive."""

Entry = TypeVar("Entry")


@dataclass(slots=True)
class TokenBucket:
    """Token bucket of a tenant, in bytes.

    The level may become negative: bytes that were already read are charged, and the next push is rejected.
    """

    level: float = 0.0
    at_s: float = float("-inf")
    rate: float = 0.0
    burst: float = 0.0

    def fill(self, rate: float, burst: float, now_s: float) -> None:
        """Add the tokens for the time since the last call."""
        self.level = burst if self.at_s == float("-inf") else min(burst, self.level + (now_s - self.at_s) * rate)
        self.at_s, self.rate, self.burst = now_s, rate, burst

    def is_full(self, now_s: float) -> bool:
        """Return whether the bucket equals a new one."""
        return self.level + (now_s - self.at_s) * self.rate >= self.burst


@dataclass(slots=True)
class ActiveSeries:
    """Fingerprints seen in the current window and in the one before it."""

    now: set[int] = field(default_factory=set)
    before: set[int] = field(default_factory=set)
    since_s: float = 0.0

    def turn(self, now_s: float) -> None:
        """Start a new window if the current one has ended, and drop inactive series."""
        if now_s - self.since_s >= SERIES_ACTIVE_S:
            is_recent = now_s - self.since_s < 2 * SERIES_ACTIVE_S
            self.before, self.now, self.since_s = self.now if is_recent else set(), set(), now_s

    def is_silent(self, now_s: float) -> bool:
        """Return whether no series is active."""
        return now_s - self.since_s >= 2 * SERIES_ACTIVE_S or not (self.now or self.before)

    def admit(self, fingerprint: int, most: int) -> bool:
        """Return whether a series may send; an active series always may."""
        if fingerprint in self.now:
            return True
        if fingerprint not in self.before and len(self.now | self.before) >= most:
            return False
        self.now.add(fingerprint)
        return True


class TenantBudgets:
    """Budgets of all tenants; times are seconds of a monotonic clock. Data races cost some accuracy only.

    Names may come from untrusted input, so the tables are bounded. Only entries equal to new ones are evicted: full
    buckets and sets of inactive series. While there are none, further names share one budget.
    """

    def __init__(self, tenants_max: int = TENANTS_MAX) -> None:
        self._tenants_max = tenants_max
        self._buckets: dict[str, TokenBucket] = {}
        self._series: dict[str, ActiveSeries] = {}
        self._swept_at_s = {id(table): float("-inf") for table in (self._buckets, self._series)}

    def may_read(self, tenant: str, limits: TenantPushLimits, now_s: float) -> bool:
        """Return whether a tenant's bucket is not negative; called before its bytes are read."""
        return self._bucket(tenant, limits, now_s).level >= 0

    def may_send(self, tenant: str, size: int, limits: TenantPushLimits, now_s: float) -> bool:
        """Take ``size`` bytes from a tenant's budget; return False, and take nothing, if it holds fewer."""
        bucket = self._bucket(tenant, limits, now_s)
        if size > bucket.level:
            return False
        bucket.level -= size
        return True

    def charge(self, tenant: str, size: int) -> None:
        """Charge further bytes, even if the bucket becomes negative."""
        bucket = self._buckets.get(tenant) or self._buckets.get(SHARED)
        if bucket is not None:
            bucket.level -= size

    def admit_series(self, tenant: str, fingerprints: Iterable[int], most: int, now_s: float) -> list[bool]:
        """Return for each series whether it fits in the tenant's limit of active series."""
        name = self._place(self._series, tenant, now_s, lambda active: active.is_silent(now_s))
        active = self._series.setdefault(name, ActiveSeries(since_s=now_s))
        active.turn(now_s)
        return [active.admit(fingerprint, most) for fingerprint in fingerprints]

    def _bucket(self, tenant: str, limits: TenantPushLimits, now_s: float) -> TokenBucket:
        name = self._place(self._buckets, tenant, now_s, lambda bucket: bucket.is_full(now_s))
        bucket = self._buckets.setdefault(name, TokenBucket())
        bucket.fill(limits.bytes_per_second, limits.burst_bytes, now_s)
        return bucket

    def _place(self, table: dict[str, Entry], tenant: str, now_s: float, is_as_new: Callable[[Entry], bool]) -> str:
        """Return the key of a tenant in the table; a full table is swept at most every SWEEP_S."""
        if tenant in table or len(table) < self._tenants_max:
            return tenant
        if now_s - self._swept_at_s[id(table)] >= SWEEP_S:
            self._swept_at_s[id(table)] = now_s
            for name in [name for name, entry in list(table.items()) if is_as_new(entry)]:
                table.pop(name, None)
        return tenant if len(table) < self._tenants_max else SHARED
