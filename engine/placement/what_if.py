"""The effect of a changed ring or changed rules on placement, for dry runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.placement.candidates import picks_at_random
from engine.placement.model import LoadBalancing, PlacementRules
from engine.placement.placer import Placer
from engine.placement.ring import Ring


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSeries:
    """A series and its usage, in any unit."""

    tenant: str
    dataset: str
    fingerprint: int
    usage: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """The usage that a change moves, as fractions of the total.

    ``unavoidable`` is a lower bound for any placement: the usage of removed instances, or the fair share of new ones,
    whichever is more. ``by_instance`` is the usage of each instance after the change.
    """

    moved: float
    unavoidable: float
    moved_shards: float
    by_instance: dict[str, float]


def compare_placements(
    before: Ring, after: Ring, rules: PlacementRules, series: Iterable[PlacedSeries], *, new_rules: PlacementRules
) -> Movement:
    """Return the usage that changes its instance (``moved``) or its shard (``moved_shards``).

    Datasets with random balancing are placed by fingerprint.
    """
    old, new = Placer(before, by_fingerprint(rules)), Placer(after, by_fingerprint(new_rules))
    gone = {one.id for one in before.instances} - {one.id for one in after.instances}
    total = moved = moved_shards = lost = 0.0
    by_instance: dict[str, float] = defaultdict(float)
    for one in series:
        was = old.decide(one.tenant, one.dataset, one.fingerprint)
        now = new.decide(one.tenant, one.dataset, one.fingerprint)
        total += one.usage
        moved += one.usage * (was.instance != now.instance)
        moved_shards += one.usage * (was.shard != now.shard)
        lost += one.usage * (was.instance in gone)
        by_instance[now.instance] += one.usage
    whole = total or 1.0
    return Movement(
        moved=moved / whole,
        unavoidable=max(lost / whole, _new_instances_share(before, after)),
        moved_shards=moved_shards / whole,
        by_instance=dict(by_instance),
    )


def by_fingerprint(rules: PlacementRules) -> PlacementRules:
    """Return the rules with balancing by fingerprint, so that two placements can be compared."""
    return replace(
        rules,
        datasets={
            key: replace(rule, load_balancing=LoadBalancing.FINGERPRINT)
            if picks_at_random(rule.load_balancing)
            else rule
            for key, rule in rules.datasets.items()
        },
        tenants={
            tenant: replace(limits, load_balancing=LoadBalancing.DYNAMIC) for tenant, limits in rules.tenants.items()
        },
        default_limits=replace(rules.default_limits, load_balancing=LoadBalancing.DYNAMIC),
    )


def _new_instances_share(before: Ring, after: Ring) -> float:
    known = {one.id for one in before.instances}
    tokens = sum(one.tokens for one in after.instances) or 1
    return sum(one.tokens for one in after.instances if one.id not in known) / tokens
