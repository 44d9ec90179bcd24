"""The instances to which a profile can be sent, in the order of attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from engine.placement.model import LoadBalancing
from engine.placement.ring import FLEET, Ring

DATASETS_MAX = 65_536
"""Datasets that a placer caches before it clears the cache: names come from untrusted clients."""


class Candidate(NamedTuple):
    """An instance, its ring position, and the number of shards that a dataset needs to include that position."""

    instance: str
    position: int
    dataset_shards: int


Table = tuple[str | None, ...]
"""The writable instance of each ring position, None where there is none."""


def writable_tables(ring: Ring, zone: str) -> tuple[Table | None, Table]:
    """Return the tables of a distributor's zone (None without instances there) and of the fleet."""
    writable = {instance.id for instance in ring.instances if instance.is_writable()}

    def table(owners: Sequence[str]) -> Table:
        return tuple(owner if owner in writable else None for owner in owners)

    home = ring.tables.get(zone)
    return (None if home is None else table(home)), table(ring.tables.get(FLEET, ()))


def iterate_candidates(
    tables: Iterable[Table], order: Callable[[], Iterable[int]], dataset_shards: int
) -> Iterator[Candidate]:
    """Yield each instance of the tables once: table by table, each in the order of positions that ``order`` gives."""
    seen: set[str] = set()
    for table in tables:
        for index, position in enumerate(order()):
            instance = table[position]
            if instance is not None and instance not in seen:
                seen.add(instance)
                yield Candidate(instance, position, max(dataset_shards, index + 1))


def pinned_positions(shards: Iterable[int], space: int) -> tuple[int, ...]:
    """Return the positions of pinned shards, without those that the ring does not have."""
    return tuple(shard - 1 for shard in dict.fromkeys(shards) if 1 <= shard <= space)


def picks_at_random(choice: LoadBalancing) -> bool:
    """Return whether a shard is selected at random for each request rather than by fingerprint."""
    return choice is LoadBalancing.ROUND_ROBIN


def no_instance_message(zone: str, tenant: str) -> str:
    """Return the error message for a profile without a candidate."""
    where = f"zone {zone!r}" if zone else "the fleet"
    return f"no active instance in {where} for tenant {tenant!r}: start one, or let the tenant leave its zone"
