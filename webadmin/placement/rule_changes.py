"""Compare two versions of the rules by dataset, with the reason of each difference. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.placement.build_rules import PlacementSettings
from engine.placement.load_balancing import skew
from engine.placement.model import DatasetKey, DatasetRule, LoadBalancing, PlacementRules
from engine.placement.rate import format_rate
from engine.placement.statistics import DatasetStatistics, PlacementStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDifference:
    """One dataset's rule before and after, and why."""

    key: DatasetKey
    before: DatasetRule | None
    after: DatasetRule | None
    reason: str


def differences(
    before: PlacementRules, after: PlacementRules, statistics: PlacementStatistics, settings: PlacementSettings
) -> list[RuleDifference]:
    """Return the differences of the later rules, sorted by tenant and dataset."""
    usages = {(found.tenant, found.dataset): found for found in statistics.datasets}
    changed = []
    for key in sorted({*before.datasets, *after.datasets}):
        old, new = before.datasets.get(key), after.datasets.get(key)
        if rule_json(old) != rule_json(new):
            usage = usages.get(key) or DatasetStatistics(tenant=key[0], dataset=key[1], shards=(), deviation=0.0)
            changed.append(RuleDifference(key=key, before=old, after=new, reason=_reason(old, new, usage, settings)))
    return changed


def rule_json(rule: DatasetRule | None) -> dict[str, Any] | None:
    """Return the contents of a rule, without the time of its last evaluation."""
    if rule is None:
        return None
    return {
        "tenant_shards": rule.tenant_shards,
        "dataset_shards": rule.dataset_shards,
        "load_balancing": rule.load_balancing.name.lower(),
        "shards": list(rule.shards),
    }


def _reason(
    old: DatasetRule | None, new: DatasetRule | None, usage: DatasetStatistics, settings: PlacementSettings
) -> str:
    if new is None:
        return "no writes for 15 minutes"
    if (usage.tenant, usage.dataset) in settings.overrides:
        return "override by an operator"
    rate = format_rate(usage.usage())
    if old is None:
        return f"new dataset, write rate {rate}"
    if old.shards:
        return "override removed"
    limits, parts = settings.limits(usage.tenant), []
    if new.dataset_shards > old.dataset_shards:
        parts.append(f"write rate {rate}, limit per shard {format_rate(limits.unit_bytes)}")
    if new.dataset_shards < old.dataset_shards:
        parts.append(f"write rate {rate} for the whole decay window, or lower limits")
    if new.load_balancing != old.load_balancing:
        parts.append(_choice(new.load_balancing, limits.load_balancing, usage))
    return "; ".join(parts) or "limits of the tenant changed"


def _choice(choice: LoadBalancing, configured: LoadBalancing, usage: DatasetStatistics) -> str:
    if configured is not LoadBalancing.DYNAMIC:
        return "load balancing set in the limits"
    if choice is LoadBalancing.ROUND_ROBIN:
        return f"uneven shards (skew {skew(usage):.2f}), one of them hot"
    return "end of the round-robin period: placement by fingerprint is tried again"
