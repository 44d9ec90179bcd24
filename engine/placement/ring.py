"""The ring: how many shards there are, and which instance hosts each, for the fleet and for every zone by itself.

All zones share one number of shards, so that a dataset has the same shards everywhere. Each zone has a table of its
own over its own instances, and a distributor reads the one of its zone: that is what keeps traffic inside. A
distributor without a zone reads the table of the whole fleet, which has the name "".
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
    """A snapshot. ``tables`` maps zones to owners by position; an owner is always one of ``instances``."""

    version: int = 0
    shards: int = 0
    instances: tuple[Instance, ...] = ()
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def zones(self) -> list[str]:
        """Return the zones that have instances, in order; without any zone that is none."""
        return sorted(zone for zone in self.tables if zone != FLEET)

    def check(self) -> None:
        """Raise RingRefused if a table contradicts the ring; what comes from outside is checked before it is used."""
        if not 0 <= self.shards <= SHARDS_MAX:
            raise RingRefused(f"a ring of {self.shards} shards: it has at most {SHARDS_MAX}")
        zones = {instance.id: instance.zone for instance in self.instances}
        if len(zones) != len(self.instances):
            raise RingRefused("an instance is listed twice")
        for zone, owners in self.tables.items():
            if len(owners) != self.shards:
                raise RingRefused(f"the table of zone {zone!r} has {len(owners)} positions, the ring {self.shards}")
            lost = next((owner for owner in owners if owner not in zones or zone not in (FLEET, zones[owner])), None)
            if lost is not None:
                raise RingRefused(f"the table of zone {zone!r} names {lost!r}, which is no instance of it")


EMPTY_RING = Ring()


def change_ring(ring: Ring, instances: Iterable[Instance], *, shards: int | None = None) -> Ring:
    """Return the ring for the instances that are there now; the same object if nothing is different.

    ``shards`` sets the number of shards instead of letting it grow with the tokens: most tenants move then. Instances
    of any state keep their shards; leave out those that are to lose them (left, or silent for too long).
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
        raise RingRefused(f"{shards} shards: give 1 to {SHARDS_MAX}")
    return shards


def _resized(owners: tuple[str, ...], size: int) -> list[str | None]:
    return [owners[position] if position < len(owners) else None for position in range(size)]
