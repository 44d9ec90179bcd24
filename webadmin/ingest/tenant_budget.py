"""How fast a tenant pushes and how many series it has, as one web process sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from webadmin.ingest.tenant_limits import TenantPushLimits

TENANTS_MAX = 10_000
"""Tenants with a budget of their own."""
SHARED = ""
"""The name of the budget that all others share; no tenant has it."""
SWEEP_S = 1.0
"""Shortest time between two searches for what may be forgotten: each looks at every tenant."""
SERIES_ACTIVE_S = 1800.0
"""A series that sent nothing for one to two such spans is not active any more."""

Entry = TypeVar("Entry")


@dataclass(slots=True)
class TokenBucket:
    """Bytes a tenant may send now. It may go into debt: what was read cannot be unread, but the next one waits."""

    level: float = 0.0
    at_s: float = float("-inf")
    rate: float = 0.0
    burst: float = 0.0

    def fill(self, rate: float, burst: float, now_s: float) -> None:
        """Add what has come in since the last time."""
        self.level = burst if self.at_s == float("-inf") else min(burst, self.level + (now_s - self.at_s) * rate)
        self.at_s, self.rate, self.burst = now_s, rate, burst

    def is_full(self, now_s: float) -> bool:
        """Say whether it holds what a new one would."""
        return self.level + (now_s - self.at_s) * self.rate >= self.burst


@dataclass(slots=True)
class ActiveSeries:
    """Fingerprints seen in the present span and in the one before it."""

    now: set[int] = field(default_factory=set)
    before: set[int] = field(default_factory=set)
    since_s: float = 0.0

    def turn(self, now_s: float) -> None:
        """Forget what was silent for long."""
        if now_s - self.since_s >= SERIES_ACTIVE_S:
            is_recent = now_s - self.since_s < 2 * SERIES_ACTIVE_S
            self.before, self.now, self.since_s = self.now if is_recent else set(), set(), now_s

    def is_silent(self, now_s: float) -> bool:
        """Say whether no series is active."""
        return now_s - self.since_s >= 2 * SERIES_ACTIVE_S or not (self.now or self.before)

    def admit(self, fingerprint: int, most: int) -> bool:
        """Say whether a series may send; one that is active always may."""
        if fingerprint in self.now:
            return True
        if fingerprint not in self.before and len(self.now | self.before) >= most:
            return False
        self.now.add(fingerprint)
        return True


class TenantBudgets:
    """Budgets of all tenants. Times are of a monotonic clock, in seconds. A lost race costs some accuracy.

    Names may come from outside, so that tables have bounds. Only what would begin as it is now may be forgotten: a full
    bucket, series that are all silent. While there is none of these, further names share one budget.
    """

    def __init__(self, tenants_max: int = TENANTS_MAX) -> None:
        self._tenants_max = tenants_max
        self._buckets: dict[str, TokenBucket] = {}
        self._series: dict[str, ActiveSeries] = {}
        self._swept_at_s = {id(table): float("-inf") for table in (self._buckets, self._series)}

    def may_read(self, tenant: str, limits: TenantPushLimits, now_s: float) -> bool:
        """Say whether a tenant is out of debt, before its bytes are read."""
        return self._bucket(tenant, limits, now_s).level >= 0

    def may_send(self, tenant: str, size: int, limits: TenantPushLimits, now_s: float) -> bool:
        """Take ``size`` bytes from a tenant's budget; False if it does not hold so many, and then nothing is taken."""
        bucket = self._bucket(tenant, limits, now_s)
        if size > bucket.level:
            return False
        bucket.level -= size
        return True

    def charge(self, tenant: str, size: int) -> None:
        """Take more, even if the tenant goes into debt by it."""
        bucket = self._buckets.get(tenant) or self._buckets.get(SHARED)
        if bucket is not None:
            bucket.level -= size

    def admit_series(self, tenant: str, fingerprints: Iterable[int], most: int, now_s: float) -> list[bool]:
        """Say for each series whether the tenant may have it beside those that are active."""
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
        """Return the name under which a tenant is found; a table that is full is swept at most every SWEEP_S."""
        if tenant in table or len(table) < self._tenants_max:
            return tenant
        if now_s - self._swept_at_s[id(table)] >= SWEEP_S:
            self._swept_at_s[id(table)] = now_s
            for name in [name for name, entry in list(table.items()) if is_as_new(entry)]:
                table.pop(name, None)
        return tenant if len(table) < self._tenants_max else SHARED
