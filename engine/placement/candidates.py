"""The instances that may take a profile, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from engine.placement.model import LoadBalancing
from engine.placement.ring import FLEET, Ring

DATASETS_MAX = 65_536
"""How many datasets' places a placer remembers before it forgets them all: names come from outside."""


class Candidate(NamedTuple):
    """An instance, the position that led to it, and how many shards the dataset must have to reach that far."""

    instance: str
    position: int
    dataset_shards: int


Table = tuple[str | None, ...]
"""Which instance is written to at each position; None where nobody takes anything now."""


def writable_tables(ring: Ring, zone: str) -> tuple[Table | None, Table]:
    """Return the tables of a distributor's own zone (None: no instance there) and of the fleet."""
    writable = {instance.id for instance in ring.instances if instance.is_writable()}

    def table(owners: Sequence[str]) -> Table:
        return tuple(owner if owner in writable else None for owner in owners)

    home = ring.tables.get(zone)
    return (None if home is None else table(home)), table(ring.tables.get(FLEET, ()))


def in_order(tables: Iterable[Table], order: Callable[[], Iterable[int]], dataset_shards: int) -> Iterator[Candidate]:
    """Yield every instance of the tables once, those of the first table first, each table in the fallback order."""
    seen: set[str] = set()
    for table in tables:
        for index, position in enumerate(order()):
            instance = table[position]
            if instance is not None and instance not in seen:
                seen.add(instance)
                yield Candidate(instance, position, max(dataset_shards, index + 1))


def pinned_positions(shards: Iterable[int], space: int) -> tuple[int, ...]:
    """Return the positions of pinned shards; those the ring does not have are passed over."""
    return tuple(shard - 1 for shard in dict.fromkeys(shards) if 1 <= shard <= space)


def picks_at_random(choice: LoadBalancing) -> bool:
    """Say whether the shard is picked anew for each request; anything else than round robin goes by fingerprint."""
    return choice is LoadBalancing.ROUND_ROBIN


def no_instance(zone: str, tenant: str) -> str:
    """Return the message for a profile that nobody may take."""
    where = f"zone {zone!r}" if zone else "the fleet"
    return f"no active instance in {where} for tenant {tenant!r}: start one, or let the tenant leave its zone"
