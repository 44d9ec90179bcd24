"""Assignment of shards to instances, with few changes when instances join or leave.

A table is a tuple of owners, one per position. It is a ledger: the next table is made from the last one, so that it has
to be kept. Decision: ``docs/decisions/0020-stable-shard-placement.md``.

1. Every instance hosts its share by tokens, rounded down or up.
2. A position changes its owner only if the owner has left or hosts more than its share.
3. Owners without a nearby position are preferred, because the shards of a dataset are adjacent.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import xxhash

from engine.placement.errors import RingRefused
from engine.placement.model import SHARDS_MAX, TOKENS_MAX

NEARBY_MAX = 16
"""Distance to each side within which an owner's positions are nearby; few datasets are wider."""

_Need = tuple[int, int, str]
"""Minus the number of missing positions, a hash that breaks ties, the instance; the smallest has the greatest need."""


def assign_shards(owners: Sequence[str | None], tokens: Mapping[str, int]) -> tuple[str, ...]:
    """Return the table for the instances of ``tokens``, with few changes to ``owners`` (None: no owner).

    ``tokens`` maps instances to weights; without instances the table is empty. Raises RingRefused.
    """
    if not tokens:
        return ()
    _check(owners, tokens)
    kept: list[str | None] = [owner if owner in tokens else None for owner in owners]
    held = Counter(owner for owner in kept if owner is not None)
    shares = fair_shares(len(kept), tokens, held)
    _release_surplus(kept, shares.most)
    return _fill(kept, shares)


@dataclass(frozen=True, slots=True)
class Shares:
    """The least and the greatest number of positions of each instance.

    The two differ by one for some instances; ``open_extras`` of those get the additional position.
    """

    least: Mapping[str, int]
    most: Mapping[str, int]
    open_extras: int


def fair_shares(positions: int, tokens: Mapping[str, int], held: Mapping[str, int]) -> Shares:
    """Return the shares, rounded down; those that host more already are rounded up first."""
    total = sum(tokens.values())
    least = {instance: positions * weight // total for instance, weight in tokens.items()}
    extras = positions - sum(least.values())
    by_claim = sorted(
        (instance for instance, weight in tokens.items() if positions * weight % total),
        key=lambda instance: (-(positions * tokens[instance] % total), _tie(instance), instance),
    )
    holders = [instance for instance in by_claim if held.get(instance, 0) > least[instance]][:extras]
    least |= {instance: least[instance] + 1 for instance in holders}
    may_have_more = [] if len(holders) == extras else [name for name in by_claim if held.get(name, 0) <= least[name]]
    most = least | {instance: least[instance] + 1 for instance in may_have_more if instance not in holders}
    return Shares(least, most, extras - len(holders))


def ring_size(current: int, tokens: int) -> int:
    """Return the number of shards for a total of tokens: ``current`` while it suffices, else twice the tokens.

    It never shrinks: that would move tenants, while a surplus costs only some small objects. Raises RingRefused.
    """
    if tokens <= current:
        return current
    if 2 * tokens > SHARDS_MAX:
        raise RingRefused(
            f"{tokens} tokens need {2 * tokens} shards, a ring has at most {SHARDS_MAX}: use fewer tokens"
        )
    return 2 * tokens


def _check(owners: Sequence[str | None], tokens: Mapping[str, int]) -> None:
    if len(owners) > SHARDS_MAX:
        raise RingRefused(f"expected at most {SHARDS_MAX} shards, found {len(owners)}")
    for instance, weight in tokens.items():
        if not instance:
            raise RingRefused("an instance without an id cannot host shards")
        if not 1 <= weight <= TOKENS_MAX:
            raise RingRefused(f"instance {instance!r} has {weight} tokens, expected 1 to {TOKENS_MAX}")


def _release_surplus(kept: list[str | None], most: Mapping[str, int]) -> None:
    """Clear the positions beyond each owner's share, so that the remaining ones are evenly spread."""
    hosted: dict[str, list[int]] = {}
    for position, owner in enumerate(kept):
        if owner is not None:
            hosted.setdefault(owner, []).append(position)
    for owner, positions in hosted.items():
        surplus = len(positions) - most[owner]
        if surplus > most[owner]:
            staying = {positions[index * len(positions) // most[owner]] for index in range(most[owner])}
            released = [position for position in positions if position not in staying]
        else:
            released = _release_order(kept, positions, _tie(owner))[: max(surplus, 0)]
        for position in released:
            kept[position] = None


def _release_order(kept: Sequence[str | None], positions: Sequence[int], tie: int) -> list[int]:
    """Return the positions, those without a free one nearby first: a single new instance may get all free ones."""
    rotated = [positions[(tie + index) % len(positions)] for index in range(len(positions))]
    return sorted(rotated, key=lambda position: None in _around(kept, position, NEARBY_MAX))


def _around(kept: Sequence[str | None], position: int, nearby: int) -> list[str | None]:
    """Return the owners on both sides of a position, the nearest first."""
    sides = ((position - distance, position + distance) for distance in range(1, nearby + 1))
    return [kept[neighbour % len(kept)] for pair in sides for neighbour in pair]


def _fill(kept: list[str | None], shares: Shares) -> tuple[str, ...]:
    held = Counter(owner for owner in kept if owner is not None)
    must = [(held[name] - share, _tie(name), name) for name, share in shares.least.items() if held[name] < share]
    may = [(-1, _tie(name), name) for name, share in shares.most.items() if share > shares.least[name]]
    heapq.heapify(must)
    heapq.heapify(may)
    open_extras = shares.open_extras
    nearby = min(NEARBY_MAX, len(shares.least) - 1)
    for position, owner in enumerate(kept):
        if owner is not None:
            continue
        distances = _distances(kept, position, nearby)
        chosen = _take(must, distances)
        if chosen is None and open_extras:
            chosen = _take(may, distances)
            open_extras -= chosen is not None
        if chosen is None:
            chosen = _take_farthest(must or may, distances)
        kept[position] = chosen
    return tuple(owner for owner in kept if owner is not None)


def _distances(kept: Sequence[str | None], position: int, nearby: int) -> dict[str, int]:
    """Return the distance of each instance's nearest position, for instances that have one nearby."""
    found: dict[str, int] = {}
    for index, owner in enumerate(_around(kept, position, nearby)):
        if owner is not None:
            found.setdefault(owner, index // 2 + 1)
    return found


def _take(needs: list[_Need], distances: Mapping[str, int]) -> str | None:
    """Return the instance with the greatest need that has no position nearby, None if there is none."""
    passed: list[_Need] = []
    while needs and needs[0][2] in distances:
        passed.append(heapq.heappop(needs))
    chosen = heapq.heappop(needs) if needs else None
    for need in passed:
        heapq.heappush(needs, need)
    if chosen is None:
        return None
    _put_back(needs, chosen)
    return chosen[2]


def _take_farthest(needs: list[_Need], distances: Mapping[str, int]) -> str:
    """Return the instance whose nearest position is farthest; all have one nearby."""
    chosen = max(needs, key=lambda need: (distances[need[2]], need))
    needs.remove(chosen)
    heapq.heapify(needs)
    _put_back(needs, chosen)
    return chosen[2]


def _put_back(needs: list[_Need], served: _Need) -> None:
    priority, tie, instance = served
    if priority < -1:
        heapq.heappush(needs, (priority + 1, tie, instance))


def _tie(instance: str) -> int:
    return xxhash.xxh64_intdigest(instance.encode("utf-8", "surrogatepass"))
