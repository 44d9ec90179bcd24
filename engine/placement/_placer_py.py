"""The placer in pure Python: computes each decision from the definition of subrings."""

from __future__ import annotations

from collections.abc import Iterator

from engine.placement.candidates import (
    Candidate,
    iterate_candidates,
    no_instance_message,
    picks_at_random,
    pinned_positions,
    writable_tables,
)
from engine.placement.errors import EmptyRing, NoInstance
from engine.placement.model import PlacementRules
from engine.placement.ring import Ring
from engine.placement.subrings import dataset_subring, fallback_order, key_hash, pinned_order

MASK = (1 << 64) - 1


class Decision:
    """See ``engine.placement.placer``."""

    def __init__(self, placer: Placer, tenant: str, dataset: str, pick: int) -> None:
        self._placer = placer
        self._tenant = tenant
        self._pick = pick
        rule = placer.rules.rule(tenant, dataset)
        space = placer.ring.shards
        self._subring = dataset_subring(
            space, key_hash(tenant), key_hash(dataset), rule.tenant_shards, rule.dataset_shards
        )
        self._pinned = pinned_positions(rule.shards, space)
        self.dataset_shards = len(self._pinned) or self._subring.size()
        self._pick %= self.dataset_shards
        self.position = next(self.order())
        self.shard = self.position + 1
        first = next(self.candidates(), None)
        if first is None:
            raise NoInstance(no_instance_message(placer.zone, tenant))
        self.instance = first.instance

    def order(self) -> Iterator[int]:
        if self._pinned:
            return pinned_order(self._pinned, self._subring.parent(), self._pick)
        return fallback_order(self._subring, self._pick)

    def candidates(self) -> Iterator[Candidate]:
        may_leave = not self._placer.zone or self._placer.rules.limits(self._tenant).may_leave_zone
        home, fleet = writable_tables(self._placer.ring, self._placer.zone)
        tables = ([] if home is None else [home]) + ([fleet] if may_leave else [])
        return iterate_candidates(tables, self.order, self.dataset_shards)


class Placer:
    """See ``engine.placement.placer``."""

    def __init__(self, ring: Ring, rules: PlacementRules, zone: str = "", seed: int = 0) -> None:
        self.ring = ring
        self.rules = rules
        self.zone = zone
        self._random = seed & MASK

    def decide(self, tenant: str, dataset: str, fingerprint: int) -> Decision:
        if not 0 <= fingerprint <= MASK:
            raise OverflowError(f"fingerprint {fingerprint} is not an unsigned 64-bit number")
        if not self.ring.instances:
            raise EmptyRing("no instance hosts any shard: start a segment writer")
        is_random = picks_at_random(self.rules.rule(tenant, dataset).load_balancing)
        return Decision(self, tenant, dataset, self._draw() if is_random else fingerprint)

    def check(self) -> None:
        self.ring.check()

    def _draw(self) -> int:
        """Return the next number of the SplitMix64 generator."""
        self._random = (self._random + 0x9E3779B97F4A7C15) & MASK
        mixed = ((self._random ^ (self._random >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return mixed ^ (mixed >> 31)
