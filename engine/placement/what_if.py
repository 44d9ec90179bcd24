"""What moves if the ring or the rules were different: the dry run behind every change of membership or limits."""

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
    """A series to place and how much it writes, in any unit."""

    tenant: str
    dataset: str
    fingerprint: int
    usage: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """What a change moves, as fractions of the whole usage.

    ``unavoidable`` is what must move however clever the placement: what lay on instances that are gone, or the fair
    share of those that are new, whichever is more. ``by_instance`` is the usage each instance has afterwards.
    """

    moved: float
    unavoidable: float
    moved_shards: float
    by_instance: dict[str, float]


def compare(
    before: Ring, after: Ring, rules: PlacementRules, series: Iterable[PlacedSeries], *, new_rules: PlacementRules
) -> Movement:
    """Place every series under both rings and rules; ``moved`` counts other instances, ``moved_shards`` other shards.

    A dataset that is picked at random counts at the shard of its fingerprint.
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
        unavoidable=max(lost / whole, _newcomers_share(before, after)),
        moved_shards=moved_shards / whole,
        by_instance=dict(by_instance),
    )


def by_fingerprint(rules: PlacementRules) -> PlacementRules:
    """Return the rules with every pick made by fingerprint, so that two placements can be compared."""
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


def _newcomers_share(before: Ring, after: Ring) -> float:
    known = {one.id for one in before.instances}
    tokens = sum(one.tokens for one in after.instances) or 1
    return sum(one.tokens for one in after.instances if one.id not in known) / tokens
