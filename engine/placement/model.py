"""Types of placement: instances, limits, rules. A *position* counts from 0; a *shard* is its position plus 1."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.placement.errors import LimitsRefused, PinRefused

DatasetKey = tuple[str, str]
"""Tenant and name of a dataset; names are unique per tenant."""

TOKENS_DEFAULT = 4
TOKENS_MAX = 1_024
SHARDS_MAX = 65_536
"""Bounds the number of objects per flush."""
DATASET_SHARDS_MAX = 1_024
HEARTBEAT_TIMEOUT_S = 60.0


class InstanceState(enum.StrEnum):
    """The lifecycle state of a segment writer."""

    PENDING = "pending"  # registered, not ready
    JOINING = "joining"  # is being given its shards
    ACTIVE = "active"  # accepts profiles
    LEAVING = "leaving"  # flushes and terminates


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A segment writer. ``tokens`` is its relative weight, ``zone`` is "" if it has none.

    ``address`` is where it listens; placement does not interpret it.
    """

    id: str
    zone: str = ""
    address: str = ""
    tokens: int = TOKENS_DEFAULT
    state: InstanceState = InstanceState.ACTIVE

    def is_writable(self) -> bool:
        """Return whether profiles may be sent to it. In other states it keeps its shards and gets no profiles."""
        return self.state is InstanceState.ACTIVE


class LoadBalancing(enum.IntEnum):
    """How one of a dataset's shards is selected. In limits, DYNAMIC selects a mode by the statistics."""

    DYNAMIC = 0  # by fingerprint unless the statistics show a skew
    FINGERPRINT = 1  # a series stays on one shard
    ROUND_ROBIN = 2  # each request selects a shard at random, with equal probability


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """The limits of a tenant. ``tenant_shards`` 0 is the whole ring; ``unit_bytes`` is bytes/s per shard."""

    tenant_shards: int = 0
    default_dataset_shards: int = 1
    dataset_shards_min: int = 1
    dataset_shards_max: int = DATASET_SHARDS_MAX
    load_balancing: LoadBalancing = LoadBalancing.DYNAMIC
    unit_bytes: int = 128 << 10
    burst_window_s: float = 17 * 60.0
    decay_window_s: float = 19 * 60.0
    may_leave_zone: bool = True

    def check(self) -> None:
        """Raise LimitsRefused if a limit is out of range or limits contradict each other."""
        if not 1 <= self.dataset_shards_min <= self.dataset_shards_max <= SHARDS_MAX:
            bounds = f"{self.dataset_shards_min} to {self.dataset_shards_max}"
            raise LimitsRefused(f"dataset shards are {bounds}, expected 1 <= min <= max <= {SHARDS_MAX}")
        if not (0 <= self.tenant_shards <= SHARDS_MAX and 0 <= self.default_dataset_shards <= SHARDS_MAX):
            raise LimitsRefused(f"tenant and default dataset shards must be 0 to {SHARDS_MAX}")
        if self.unit_bytes < 1:
            raise LimitsRefused(f"unit_bytes is {self.unit_bytes}, expected at least 1")
        if not (0 < self.burst_window_s < 1e9 and 0 < self.decay_window_s < 1e9):
            raise LimitsRefused("burst and decay window must be positive numbers of seconds")


DEFAULT_LIMITS = TenantLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRule:
    """The placement of a dataset. ``shards`` are pinned by an operator; without any, hashing selects them."""

    tenant_shards: int
    dataset_shards: int
    load_balancing: LoadBalancing = LoadBalancing.FINGERPRINT
    shards: tuple[int, ...] = ()
    updated_at_ms: int = 0

    def is_capped(self) -> bool:
        """Return whether the tenant's limit reduces the number of shards."""
        return not self.shards and 0 < self.tenant_shards < self.dataset_shards


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOverride:
    """An operator's override for a dataset; None means no override. ``shards`` pins the dataset."""

    tenant_shards: int | None = None
    dataset_shards: int | None = None
    load_balancing: LoadBalancing | None = None
    shards: tuple[int, ...] = ()

    def check(self, ring_shards: int) -> None:
        """Raise PinRefused or LimitsRefused if invalid; ``ring_shards`` is 0 if the ring is not known."""
        for limit in (self.tenant_shards, self.dataset_shards):
            if limit is not None and not 0 <= limit <= SHARDS_MAX:
                raise LimitsRefused(f"a shard limit is {limit}, expected 0 to {SHARDS_MAX}")
        if len(set(self.shards)) != len(self.shards):
            raise PinRefused(f"shards {list(self.shards)} contain a duplicate")
        unknown = [shard for shard in self.shards if not 1 <= shard <= (ring_shards or SHARDS_MAX)]
        if unknown:
            raise PinRefused(f"shards {unknown} do not exist: the ring has 1 to {ring_shards or SHARDS_MAX}")

    def applied(self, rule: DatasetRule) -> DatasetRule:
        """Return ``rule`` with this override applied."""
        return replace(
            rule,
            tenant_shards=rule.tenant_shards if self.tenant_shards is None else self.tenant_shards,
            dataset_shards=rule.dataset_shards if self.dataset_shards is None else self.dataset_shards,
            load_balancing=rule.load_balancing if self.load_balancing is None else self.load_balancing,
            shards=self.shards,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """The rules of all datasets. ``version`` increases by one with every publication.

    ``tenants`` are the limits of tenants that do not have ``default_limits``.
    """

    version: int = 0
    created_at_ms: int = 0
    datasets: Mapping[DatasetKey, DatasetRule] = field(default_factory=dict)
    tenants: Mapping[str, TenantLimits] = field(default_factory=dict)
    default_limits: TenantLimits = DEFAULT_LIMITS

    def limits(self, tenant: str) -> TenantLimits:
        """Return the limits of a tenant."""
        return self.tenants.get(tenant, self.default_limits)

    def rule(self, tenant: str, dataset: str) -> DatasetRule:
        """Return the rule of a dataset, or the defaults of its tenant if it has none."""
        found = self.datasets.get((tenant, dataset))
        if found is not None:
            return found
        limits = self.limits(tenant)
        return DatasetRule(
            tenant_shards=limits.tenant_shards,
            dataset_shards=limits.default_dataset_shards,
            load_balancing=limits.load_balancing,
        )
