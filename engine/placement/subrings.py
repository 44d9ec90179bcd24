"""Subrings: the interval of a tenant in the ring, that of a dataset in it, and the fallback order of positions.

This is the definition; ``_placer.pyx`` computes the same with four numbers per dataset. See
``docs/reference/placement-rules.md``.

1. A subring ``(space, a, b, c, d)`` is ``[c, d)`` with the parent ``[a, b)``; ends may exceed ``space``.
2. A child starts anywhere in its parent and wraps around inside it; the parent wraps around inside the ring.
3. The fallback order is a permutation of all positions: the dataset's, then the rest of the tenant's, then the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import xxhash

from engine.placement.errors import EmptyRing
from engine.placement.jump_hash import jump_hash


def key_hash(name: str) -> int:
    """Return the hash that places tenants and datasets: XXH64 of the UTF-8 bytes."""
    return xxhash.xxh64_intdigest(name.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class Subring:
    """The interval ``[c, d)`` inside ``[a, b)`` of a ring of ``space`` positions."""

    space: int
    a: int
    b: int
    c: int
    d: int

    @classmethod
    def whole(cls, space: int) -> Self:
        """Return the whole ring, which is its own parent. Raises EmptyRing if it has no position."""
        if space < 1:
            raise EmptyRing("the ring has no shards: start a segment writer")
        return cls(space, 0, space, 0, space)

    def size(self) -> int:
        return self.d - self.c

    def child(self, key: int, size: int) -> Self:
        """Return the subring of ``size`` positions whose start the jump hash of ``key`` selects inside this one."""
        c = self.c + jump_hash(key, self.size())
        return type(self)(self.space, self.c, self.d, c, c + size)

    def parent(self) -> Self:
        """Return the parent, whose own parent is the whole ring."""
        return type(self)(self.space, 0, self.space, self.a, self.b)

    def at(self, index: int) -> int:
        """Return the ring position of the member with this index, modulo the size."""
        inside = (self.c + index % self.size() - self.a) % (self.b - self.a)
        return (inside + self.a) % self.space

    def positions(self) -> list[int]:
        return [self.at(index) for index in range(self.size())]


def effective_sizes(space: int, tenant_shards: int, dataset_shards: int) -> tuple[int, int]:
    """Return the numbers of positions of tenant and dataset, with the limits clamped to the ring."""
    tenant = tenant_shards if 0 < tenant_shards <= space else space
    return tenant, min(tenant, max(1, dataset_shards))


def dataset_subring(space: int, tenant_key: int, dataset_key: int, tenant_shards: int, dataset_shards: int) -> Subring:
    """Return the subring of a dataset inside that of its tenant."""
    tenant_size, dataset_size = effective_sizes(space, tenant_shards, dataset_shards)
    return Subring.whole(space).child(tenant_key, tenant_size).child(dataset_key, dataset_size)


def fallback_order(dataset: Subring, pick: int) -> Iterator[int]:
    """Yield every position of the ring once: the dataset's from ``pick`` on, then the tenant's, then the rest."""
    for index in range(dataset.size()):
        yield dataset.at(pick + index)
    tenant = dataset.parent()
    offset = dataset.c - dataset.a
    for index in range(dataset.size(), tenant.size()):
        yield tenant.at(offset + index)
    for index in range(tenant.size(), tenant.space):
        yield (tenant.c + index) % tenant.space


def pinned_order(pinned: Sequence[int], tenant: Subring, pick: int) -> Iterator[int]:
    """Yield every position of the ring once: the pinned ones from ``pick`` on, then the tenant's, then the rest."""
    for index in range(len(pinned)):
        yield pinned[(pick + index) % len(pinned)]
    members = frozenset(pinned)
    for index in range(tenant.space):
        position = (tenant.c + index) % tenant.space
        if position not in members:
            yield position
