"""Dry run of placement: what would move if instances, the ring, limits or overrides changed.

Every dataset that writes now is placed twice, by the rings and rules before and after, weighted by its writes. Rules
after a change of limits are those of the next round; a smaller need lowers a number of shards only later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import xxhash

from engine.placement.build_rules import PlacementSettings, build_rules, restore_states
from engine.placement.documents import decode_statistics
from engine.placement.errors import EmptyRing, RingRefused
from engine.placement.model import TOKENS_DEFAULT, TOKENS_MAX, DatasetKey, Instance, PlacementRules
from engine.placement.placer import Placer
from engine.placement.ring import Ring, change_ring
from engine.placement.shard_table import ring_size
from engine.placement.statistics import PlacementStatistics
from engine.placement.what_if import Movement, PlacedSeries, by_fingerprint, compare_placements
from webadmin.placement.models import RulesHead
from webadmin.placement.operator_settings import operator_settings
from webadmin.placement.services.build_placement_rules import rules_of, state_of
from webadmin.placement.services.instances import current_ring

SERIES_PER_DATASET = 16
"""A dataset's load is split into this many series, which are distributed among its shards."""
DATASETS_MAX = 2_000
MOVERS_CONSIDERED = 200
MOVERS_SHOWN = 20
SAMPLE_DATASETS = 500
"""If nothing was written recently, this many synthetic datasets show what a change of the fleet moves."""
NEW_INSTANCES_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """Instances that join (zone and tokens) and leave (names), and the number of shards if it is to be set."""

    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    tokens: int = TOKENS_DEFAULT
    shards: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovementForecast:
    """What a change would move, as shares of all bytes written.

    ``moved_in_kept_ring`` is what would move if the number of shards stayed; ``loads`` are instances with their share
    before and after, ``movers`` the datasets of which most moves.
    """

    shards: tuple[int, int]
    moved: float
    unavoidable: float
    moved_in_kept_ring: float
    moved_shards: float
    loads: tuple[dict[str, Any], ...] = ()
    movers: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for API, pages and commands."""
        return {
            "shards_before": self.shards[0],
            "shards_after": self.shards[1],
            "moved_to_other_instances": percent(self.moved),
            "unavoidable": percent(self.unavoidable),
            "moved_if_shards_stayed": percent(self.moved_in_kept_ring),
            "moved_to_other_shards": percent(self.moved_shards),
            "notes": list(self.notes),
            "instances": list(self.loads),
            "datasets": list(self.movers),
        }


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.1f} %"


def what_if(change: FleetChange) -> MovementForecast:
    """Return what a change of the fleet would move. Raises RingRefused, EmptyRing."""
    before = current_ring()
    after = changed_ring(before, change)
    rules = _next_rules(_head(), operator_settings())
    return _movement(before, after, rules, rules, _statistics())


def forecast_settings(before: PlacementSettings, after: PlacementSettings) -> MovementForecast | None:
    """Return what other limits or overrides would move; None while there is no ring."""
    ring, head = current_ring(), _head()
    if not ring.shards:
        return None
    return _movement(ring, ring, _next_rules(head, before), _next_rules(head, after), _statistics())


def changed_ring(ring: Ring, change: FleetChange) -> Ring:
    """Return the ring after a change. Raises RingRefused for unknown names and for impossible numbers."""
    unknown = sorted(set(change.remove) - {one.id for one in ring.instances})
    if unknown:
        raise RingRefused(f"no instance {', '.join(unknown)} is on the ring")
    if len(change.add) > NEW_INSTANCES_MAX or not 1 <= change.tokens <= TOKENS_MAX:
        raise RingRefused(f"add at most {NEW_INSTANCES_MAX} instances of 1 to {TOKENS_MAX} tokens")
    taken = {one.id for one in ring.instances}
    fresh = [name for number in range(1, 2 * NEW_INSTANCES_MAX + 2) if (name := f"new-{number}") not in taken]
    kept = [one for one in ring.instances if one.id not in change.remove]
    added = [Instance(id=fresh[place], zone=zone, tokens=change.tokens) for place, zone in enumerate(change.add)]
    after = change_ring(ring, [*kept, *added], shards=change.shards)
    if not after.instances:
        raise EmptyRing("no instance would be left: profiles would be refused")
    return after


def _head() -> RulesHead:
    return RulesHead.objects.filter(id=1).first() or RulesHead()


def _statistics() -> PlacementStatistics:
    data = RulesHead.objects.filter(id=1).values_list("statistics", flat=True).first()
    return decode_statistics(bytes(data)) if data else PlacementStatistics(created_at_ms=0)


def _next_rules(head: RulesHead, settings: PlacementSettings) -> PlacementRules:
    """Return the rules of the next round if only the settings changed."""
    published, statistics = rules_of(head), _statistics()
    states = state_of(head).datasets or restore_states(published)
    return build_rules(published, states, replace(statistics, created_at_ms=head.built_at_ms), settings)[0]


def _movement(
    before: Ring, after: Ring, rules: PlacementRules, new_rules: PlacementRules, statistics: PlacementStatistics
) -> MovementForecast:
    usages, notes = _usages(statistics)
    if not before.shards:
        raise EmptyRing("there is no ring yet: start a segment writer")
    series = [one for key, usage in usages.items() for one in _series(key, usage)]
    moved = compare_placements(before, after, rules, series, new_rules=new_rules)
    now = compare_placements(before, before, rules, series, new_rules=rules)
    in_kept_ring = moved.moved
    if after.shards != before.shards:
        kept_ring = change_ring(before, after.instances, shards=before.shards)
        in_kept_ring = compare_placements(before, kept_ring, rules, series, new_rules=rules).moved
        notes.append(_resize_reason(before, after, moved, in_kept_ring))
    return MovementForecast(
        shards=(before.shards, after.shards),
        moved=moved.moved,
        unavoidable=moved.unavoidable,
        moved_in_kept_ring=in_kept_ring,
        moved_shards=moved.moved_shards,
        loads=_loads(now.by_instance, moved.by_instance),
        movers=_movers(before, after, rules, new_rules, usages),
        notes=tuple(notes),
    )


def _resize_reason(before: Ring, after: Ring, moved: Movement, in_kept_ring: float) -> str:
    """Return why the number of shards changes, how much of the movement that causes, and what an operator may do."""
    tokens = sum(one.tokens for one in after.instances)
    why, advice = f"The ring changes from {before.shards} to {after.shards} shards.", ""
    if before.shards < tokens and after.shards == ring_size(before.shards, tokens):
        why = (
            f"The ring grows from {before.shards} to {after.shards} shards: its instances then have {tokens} tokens, "
            "it needs a shard for each, and it takes twice as many so that it grows rarely, next beyond "
            f"{after.shards} tokens."
        )
        advice = (
            f" placement ring-size {after.shards}, run before the instance starts, does this at a time you "
            "choose; then the new instance moves no more than its share."
        )
    return (
        f"{why} The shard of a dataset depends on their number, so {percent(moved.moved)} of what is written goes to "
        f"other instances; with {before.shards} shards it would be {percent(in_kept_ring)}. This happens once and "
        f"concerns new profiles only: what was written stays where it is.{advice}"
    )


def _usages(statistics: PlacementStatistics) -> tuple[dict[DatasetKey, float], list[str]]:
    found = sorted(statistics.datasets, key=lambda one: (-one.usage(), one.tenant, one.dataset))
    usages = {(one.tenant, one.dataset): float(one.usage()) for one in found[:DATASETS_MAX]}
    if not any(usages.values()):
        samples = {("made-up", f"dataset-{number}"): 1.0 for number in range(SAMPLE_DATASETS)}
        return samples, [f"Nothing was written lately: {SAMPLE_DATASETS} made-up datasets of equal load stand in."]
    left = len(found) - len(usages)
    return usages, [f"Of the {left} datasets that write least nothing is said."] if left else []


def _series(key: DatasetKey, usage: float) -> list[PlacedSeries]:
    prints = [xxhash.xxh64_intdigest(f"{key[0]}\0{key[1]}\0{number}".encode()) for number in range(SERIES_PER_DATASET)]
    share = usage / SERIES_PER_DATASET
    return [PlacedSeries(tenant=key[0], dataset=key[1], fingerprint=one, usage=share) for one in prints]


def _loads(before: dict[str, float], after: dict[str, float]) -> tuple[dict[str, Any], ...]:
    totals = sum(before.values()) or 1.0, sum(after.values()) or 1.0
    return tuple(
        {
            "instance": name,
            "before": percent(before.get(name, 0.0) / totals[0]),
            "after": percent(after.get(name, 0.0) / totals[1]),
        }
        for name in sorted({*before, *after})
    )


def _movers(
    before: Ring, after: Ring, rules: PlacementRules, new_rules: PlacementRules, usages: dict[DatasetKey, float]
) -> tuple[dict[str, Any], ...]:
    """Return the datasets that move most, among those that write most."""
    old, new = Placer(before, by_fingerprint(rules)), Placer(after, by_fingerprint(new_rules))
    found = []
    for key, usage in list(usages.items())[:MOVERS_CONSIDERED]:
        pairs = [(old.decide(*key, one.fingerprint), new.decide(*key, one.fingerprint)) for one in _series(key, 1.0)]
        moved = sum(was.instance != now.instance for was, now in pairs) / SERIES_PER_DATASET
        counts = pairs[0][0].dataset_shards, pairs[0][1].dataset_shards
        if moved or counts[0] != counts[1] or any(was.shard != now.shard for was, now in pairs):
            found.append((usage * moved, key, moved, counts))
    found.sort(key=lambda one: (-one[0], one[1]))
    return tuple(
        {
            "tenant": key[0],
            "dataset": key[1],
            "moves": percent(moved),
            "shards_before": counts[0],
            "shards_after": counts[1],
        }
        for _, key, moved, counts in found[:MOVERS_SHOWN]
    )
