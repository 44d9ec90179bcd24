"""Placement rules from statistics: the number of shards of each dataset, and how a shard is selected.

A pure function of states and statistics. A state holds what a rule does not (times of needs, duration of a choice).
Lost states are restored from the published rules, so that no dataset shrinks at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.placement.allocator import Allocation, allocate
from engine.placement.load_balancing import Balance, choose_balance
from engine.placement.model import (
    DEFAULT_LIMITS,
    DatasetKey,
    DatasetOverride,
    DatasetRule,
    PlacementRules,
    TenantLimits,
)
from engine.placement.statistics import DatasetStatistics, PlacementStatistics

RETENTION_MS = 15 * 60 * 1000
"""A rule without statistics for this time is dropped; its dataset has the defaults of its tenant again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSettings:
    """Settings of operators: default limits, limits of tenants, overrides of datasets."""

    default_limits: TenantLimits = DEFAULT_LIMITS
    tenants: Mapping[str, TenantLimits] = field(default_factory=dict)
    overrides: Mapping[DatasetKey, DatasetOverride] = field(default_factory=dict)
    retention_ms: int = RETENTION_MS

    def limits(self, tenant: str) -> TenantLimits:
        """Return the limits of a tenant."""
        return self.tenants.get(tenant, self.default_limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetState:
    """The state of a dataset: its rule without overrides, and the states from which it was computed."""

    rule: DatasetRule
    allocation: Allocation
    balance: Balance


States = Mapping[DatasetKey, DatasetState]


def restore_states(rules: PlacementRules) -> dict[DatasetKey, DatasetState]:
    """Return states that continue published rules; no dataset loses a shard within a decay window."""
    at_s = rules.created_at_ms / 1000
    return {
        key: DatasetState(
            rule=replace(rule, shards=()),  # pins come from overrides, which each build applies
            allocation=Allocation.restored(rule.dataset_shards, at_s),
            balance=Balance(choice=rule.load_balancing, since_s=at_s),
        )
        for key, rule in rules.datasets.items()
    }


def build_rules(
    published: PlacementRules, states: States, statistics: PlacementStatistics, settings: PlacementSettings
) -> tuple[PlacementRules, dict[DatasetKey, DatasetState]]:
    """Return the next rules and states as of the time of the statistics.

    Datasets without statistics keep their rule for ``retention_ms``. Overrides do not depend on statistics.
    """
    now_ms = statistics.created_at_ms
    following = {
        key: state for key, state in states.items() if now_ms - state.rule.updated_at_ms < settings.retention_ms
    }
    for found in statistics.datasets:
        key = (found.tenant, found.dataset)
        following[key] = _next_state(following.get(key), found, settings, now_ms)
    datasets = {key: state.rule for key, state in following.items()}
    for key, override in settings.overrides.items():
        datasets[key] = override.applied(datasets.get(key) or _default_rule(settings.limits(key[0]), now_ms))
    rules = PlacementRules(
        version=published.version + 1,
        created_at_ms=now_ms,
        datasets={key: datasets[key] for key in sorted(datasets)},
        tenants=settings.tenants,
        default_limits=settings.default_limits,
    )
    return rules, following


def _next_state(
    state: DatasetState | None, statistics: DatasetStatistics, settings: PlacementSettings, now_ms: int
) -> DatasetState:
    limits, now_s = settings.limits(statistics.tenant), now_ms / 1000
    if state is None:
        start = Allocation.restored(limits.default_dataset_shards, now_s)
        state = DatasetState(rule=_default_rule(limits, now_ms), allocation=start, balance=Balance(since_s=now_s))
    allocation = allocate(state.allocation, statistics.usage(), now_s, limits)
    balance = choose_balance(
        state.balance, limits.load_balancing, statistics, allocation.target, limits.unit_bytes, now_s
    )
    rule = DatasetRule(
        tenant_shards=limits.tenant_shards,
        dataset_shards=allocation.target,
        load_balancing=balance.choice,
        updated_at_ms=now_ms,
    )
    return DatasetState(rule=rule, allocation=allocation, balance=balance)


def _default_rule(limits: TenantLimits, now_ms: int) -> DatasetRule:
    return DatasetRule(
        tenant_shards=limits.tenant_shards,
        dataset_shards=limits.default_dataset_shards,
        load_balancing=limits.load_balancing,
        updated_at_ms=now_ms,
    )
