"""How fast a tenant pushes and how many series it has, as one web process sees it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from webadmin.profiles.tenant_limits import TenantPushLimits

TENANTS_MAX = 10_000
"""Tenants that are remembered; with more, all begin anew: names may come from outside."""
SERIES_ACTIVE_S = 1800.0
"""A series that sent nothing for one to two such spans is not active any more."""


@dataclass(slots=True)
class TokenBucket:
    """Bytes a tenant may send now. It may go into debt: what was read cannot be unread, but the next one waits."""

    level: float = 0.0
    at_s: float = float("-inf")

    def fill(self, rate: float, burst: float, now_s: float) -> None:
        """Add what has come in since the last time."""
        self.level = burst if self.at_s == float("-inf") else min(burst, self.level + (now_s - self.at_s) * rate)
        self.at_s = now_s


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

    def admit(self, fingerprint: int, most: int) -> bool:
        """Say whether a series may send; one that is active always may."""
        if fingerprint in self.now:
            return True
        if fingerprint not in self.before and len(self.now | self.before) >= most:
            return False
        self.now.add(fingerprint)
        return True


class TenantBudgets:
    """Budgets of all tenants. Times are of a monotonic clock, in seconds. A lost race costs some accuracy."""

    def __init__(self) -> None:
        self._buckets: dict[str, TokenBucket] = {}
        self._series: dict[str, ActiveSeries] = {}

    def may_send(self, tenant: str, size: int, limits: TenantPushLimits, now_s: float) -> bool:
        """Take ``size`` bytes from a tenant's budget; False if it does not hold so many, and then nothing is taken."""
        if len(self._buckets) >= TENANTS_MAX:
            self._buckets.clear()
        bucket = self._buckets.setdefault(tenant, TokenBucket())
        bucket.fill(limits.bytes_per_second, limits.burst_bytes, now_s)
        if size > bucket.level:
            return False
        bucket.level -= size
        return True

    def charge(self, tenant: str, size: int) -> None:
        """Take more, even if the tenant goes into debt by it."""
        bucket = self._buckets.get(tenant)
        if bucket is not None:
            bucket.level -= size

    def admit_series(self, tenant: str, fingerprints: Iterable[int], most: int, now_s: float) -> list[bool]:
        """Say for each series whether the tenant may have it beside those that are active."""
        if len(self._series) >= TENANTS_MAX:
            self._series.clear()
        active = self._series.setdefault(tenant, ActiveSeries(since_s=now_s))
        active.turn(now_s)
        return [active.admit(fingerprint, most) for fingerprint in fingerprints]
