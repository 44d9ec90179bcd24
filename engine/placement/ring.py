"""The ring: the number of shards, and the instance that hosts each one, per zone and for the whole fleet.

All zones have the same number of shards, so that a dataset has the same shards in every zone. Each zone has a table of
its own instances, and a distributor reads the table of its zone, which keeps traffic inside the zone. A distributor
without a zone reads the table of the fleet, whose name is "".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.placement.errors import RingRefused
from engine.placement.model import SHARDS_MAX, Instance
from engine.placement.shard_table import assign_shards, ring_size

FLEET = ""
"""The name of the table over all instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """A snapshot of the ring. ``tables`` maps zones to owners by position; every owner is one of ``instances``."""

    version: int = 0
    shards: int = 0
    instances: tuple[Instance, ...] = ()
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def zones(self) -> list[str]:
        """Return the sorted zones that have instances."""
        return sorted(zone for zone in self.tables if zone != FLEET)

    def check(self) -> None:
        """Raise RingRefused if a table contradicts the ring."""
        if not 0 <= self.shards <= SHARDS_MAX:
            raise RingRefused(f"the ring has {self.shards} shards, expected at most {SHARDS_MAX}")
        zones = {instance.id: instance.zone for instance in self.instances}
        if len(zones) != len(self.instances):
            raise RingRefused("an instance is listed twice")
        for zone, owners in self.tables.items():
            if len(owners) != self.shards:
                raise RingRefused(f"the table of zone {zone!r} has {len(owners)} positions, the ring {self.shards}")
            lost = next((owner for owner in owners if owner not in zones or zone not in (FLEET, zones[owner])), None)
            if lost is not None:
                raise RingRefused(f"the table of zone {zone!r} names {lost!r}, which is not an instance of the zone")


EMPTY_RING = Ring()


def change_ring(ring: Ring, instances: Iterable[Instance], *, shards: int | None = None) -> Ring:
    """Return the ring for the present instances; ``ring`` itself if nothing changes.

    ``shards`` sets the number of shards, which otherwise grows with the tokens; a change moves most tenants. Instances
    of any state keep their shards; omit those that have left or failed. Raises RingRefused.
    """
    present = _by_id(instances)
    size = _size(ring, present, shards)
    tables = {}
    zones = {instance.zone for instance in present} | {FLEET} if present else set()
    for zone in sorted(zones):
        tokens = {instance.id: instance.tokens for instance in present if zone in (FLEET, instance.zone)}
        tables[zone] = assign_shards(_resized(ring.tables.get(zone, ()), size), tokens)
    if (size, present, tables) == (ring.shards, ring.instances, dict(ring.tables)):
        return ring
    return Ring(version=ring.version + 1, shards=size, instances=present, tables=tables)


def _by_id(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    present: dict[str, Instance] = {}
    for instance in instances:
        if instance.id in present:
            raise RingRefused(f"instance {instance.id!r} is listed twice")
        present[instance.id] = instance
    return tuple(present[name] for name in sorted(present))


def _size(ring: Ring, present: tuple[Instance, ...], shards: int | None) -> int:
    if shards is None:
        return ring_size(ring.shards, sum(instance.tokens for instance in present))
    if not 1 <= shards <= SHARDS_MAX:
        raise RingRefused(f"expected 1 to {SHARDS_MAX} shards, found {shards}")
    return shards


def _resized(owners: tuple[str, ...], size: int) -> list[str | None]:
    return [owners[position] if position < len(owners) else None for position in range(size)]
