"""The nouns of placement: instances, limits, rules. A *position* counts from 0; a *shard* is its position plus 1."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.placement.errors import LimitsRefused, PinRefused

DatasetKey = tuple[str, str]
"""Tenant and dataset: two tenants may have a dataset of one name."""

TOKENS_DEFAULT = 4
TOKENS_MAX = 1_024
SHARDS_MAX = 65_536
"""A ring of more shards would have more objects per flush than any store likes."""
DATASET_SHARDS_MAX = 1_024
HEARTBEAT_TIMEOUT_S = 60.0


class InstanceState(enum.StrEnum):
    """Where a segment writer is in its life."""

    PENDING = "pending"  # registered, not yet ready
    JOINING = "joining"  # gets its shards
    ACTIVE = "active"  # takes profiles
    LEAVING = "leaving"  # flushes and goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A segment writer; ``tokens`` is its share of the shards in relation to the others, ``zone`` "" means none.

    ``address`` is where it listens; placement carries it and never reads it.
    """

    id: str
    zone: str = ""
    address: str = ""
    tokens: int = TOKENS_DEFAULT
    state: InstanceState = InstanceState.ACTIVE

    def is_writable(self) -> bool:
        """Say whether profiles may be sent to it; the other states keep their shards and get nothing."""
        return self.state is InstanceState.ACTIVE


class LoadBalancing(enum.IntEnum):
    """How one of a dataset's shards is picked. As a choice of configuration, DYNAMIC lets the statistics decide."""

    DYNAMIC = 0  # not decided: by fingerprint until the statistics say otherwise
    FINGERPRINT = 1  # a series stays on one shard
    ROUND_ROBIN = 2  # every request picks anew, all shards alike


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """What one tenant's datasets may take. ``tenant_shards`` 0 means the whole ring; a unit is bytes/s of one shard."""

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
        """Raise LimitsRefused unless the limits can be obeyed together."""
        if not 1 <= self.dataset_shards_min <= self.dataset_shards_max <= SHARDS_MAX:
            bounds = f"{self.dataset_shards_min} to {self.dataset_shards_max}"
            raise LimitsRefused(f"dataset shards from {bounds}: give 1 <= min <= max <= {SHARDS_MAX}")
        if not (0 <= self.tenant_shards <= SHARDS_MAX and 0 <= self.default_dataset_shards <= SHARDS_MAX):
            raise LimitsRefused(f"tenant and default dataset shards must be 0 to {SHARDS_MAX}")
        if self.unit_bytes < 1:
            raise LimitsRefused(f"a unit of {self.unit_bytes} bytes/s: give at least 1")
        if not (0 < self.burst_window_s < 1e9 and 0 < self.decay_window_s < 1e9):
            raise LimitsRefused("burst and decay window must be positive numbers of seconds")


DEFAULT_LIMITS = TenantLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRule:
    """What is decided for one dataset. ``shards`` are pinned by an operator; none means that hashing places it."""

    tenant_shards: int
    dataset_shards: int
    load_balancing: LoadBalancing = LoadBalancing.FINGERPRINT
    shards: tuple[int, ...] = ()
    updated_at_ms: int = 0

    def is_capped(self) -> bool:
        """Say whether the dataset would get more shards if its tenant's limit were higher."""
        return not self.shards and 0 < self.tenant_shards < self.dataset_shards


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOverride:
    """What an operator decided for one dataset; None leaves it to the load. ``shards`` pins it to these."""

    tenant_shards: int | None = None
    dataset_shards: int | None = None
    load_balancing: LoadBalancing | None = None
    shards: tuple[int, ...] = ()

    def check(self, ring_shards: int) -> None:
        """Raise PinRefused or LimitsRefused; ``ring_shards`` 0 means that the ring is not known."""
        for limit in (self.tenant_shards, self.dataset_shards):
            if limit is not None and not 0 <= limit <= SHARDS_MAX:
                raise LimitsRefused(f"a limit of {limit} shards: give 0 to {SHARDS_MAX}")
        if len(set(self.shards)) != len(self.shards):
            raise PinRefused(f"shards {list(self.shards)}: one is named twice")
        lost = [shard for shard in self.shards if not 1 <= shard <= (ring_shards or SHARDS_MAX)]
        if lost:
            raise PinRefused(f"shards {lost} do not exist: the ring has 1 to {ring_shards or SHARDS_MAX}")

    def applied(self, rule: DatasetRule) -> DatasetRule:
        """Return the rule with what is decided here put in its place."""
        return replace(
            rule,
            tenant_shards=rule.tenant_shards if self.tenant_shards is None else self.tenant_shards,
            dataset_shards=rule.dataset_shards if self.dataset_shards is None else self.dataset_shards,
            load_balancing=rule.load_balancing if self.load_balancing is None else self.load_balancing,
            shards=self.shards,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """All that a distributor knows besides the ring. ``version`` grows by one with every publication.

    ``tenants`` holds the limits of tenants that have their own; the others have ``default_limits``.
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
        """Return the rule of a dataset; one that nobody has decided yet gets its tenant's defaults."""
        found = self.datasets.get((tenant, dataset))
        if found is not None:
            return found
        limits = self.limits(tenant)
        return DatasetRule(
            tenant_shards=limits.tenant_shards,
            dataset_shards=limits.default_dataset_shards,
            load_balancing=limits.load_balancing,
        )
