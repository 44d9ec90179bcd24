"""Subrings: a stretch of a ring, a stretch of that stretch, and the order in which positions are tried.

This is the definition in plain words; ``_placer.pyx`` does the same with four numbers per dataset.

1. A subring ``(space, a, b, c, d)`` has the parent ``[a, b)`` and is ``[c, d)`` itself; ends may exceed the space.
2. A child may start anywhere in its parent and wraps inside it; the parent wraps inside the ring.
3. The fallback order is a permutation of all positions: dataset, then the rest of tenant and ring.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import xxhash

from engine.placement.errors import EmptyRing
from engine.placement.jump_hash import jump_hash


def key_hash(name: str) -> int:
    """Return the hash by which tenants and datasets are placed: XXH64 of the UTF-8 bytes."""
    return xxhash.xxh64_intdigest(name.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class Subring:
    """A stretch ``[c, d)`` inside ``[a, b)`` of a ring of ``space`` positions."""

    space: int
    a: int
    b: int
    c: int
    d: int

    @classmethod
    def whole(cls, space: int) -> Self:
        """Return the whole ring as its own parent; EmptyRing if it has no position."""
        if space < 1:
            raise EmptyRing("the ring has no shards: start a segment writer")
        return cls(space, 0, space, 0, space)

    def size(self) -> int:
        return self.d - self.c

    def child(self, key: int, size: int) -> Self:
        """Return the subring of ``size`` positions that the key chooses inside this one."""
        c = self.c + jump_hash(key, self.size())
        return type(self)(self.space, self.c, self.d, c, c + size)

    def parent(self) -> Self:
        """Return what this subring lies in; the parent of that is the whole ring."""
        return type(self)(self.space, 0, self.space, self.a, self.b)

    def at(self, index: int) -> int:
        """Return the ring position of the index-th member, counted on around the subring."""
        inside = (self.c + index % self.size() - self.a) % (self.b - self.a)
        return (inside + self.a) % self.space

    def positions(self) -> list[int]:
        return [self.at(index) for index in range(self.size())]


def effective_sizes(space: int, tenant_shards: int, dataset_shards: int) -> tuple[int, int]:
    """Return how many positions tenant and dataset really have under limits that may be anything."""
    tenant = tenant_shards if 0 < tenant_shards <= space else space
    return tenant, min(tenant, max(1, dataset_shards))


def dataset_subring(space: int, tenant_key: int, dataset_key: int, tenant_shards: int, dataset_shards: int) -> Subring:
    """Return the dataset's subring in the tenant's subring of the ring."""
    tenant_size, dataset_size = effective_sizes(space, tenant_shards, dataset_shards)
    return Subring.whole(space).child(tenant_key, tenant_size).child(dataset_key, dataset_size)


def fallback_order(dataset: Subring, pick: int) -> Iterator[int]:
    """Yield every position of the ring once, those of the dataset first, starting at the picked one."""
    for index in range(dataset.size()):
        yield dataset.at(pick + index)
    tenant = dataset.parent()
    offset = dataset.c - dataset.a
    for index in range(dataset.size(), tenant.size()):
        yield tenant.at(offset + index)
    for index in range(tenant.size(), tenant.space):
        yield (tenant.c + index) % tenant.space


def pinned_order(pinned: Sequence[int], tenant: Subring, pick: int) -> Iterator[int]:
    """Yield the pinned positions from the picked one on, then the others: the tenant's, then those of the ring."""
    for index in range(len(pinned)):
        yield pinned[(pick + index) % len(pinned)]
    members = frozenset(pinned)
    for index in range(tenant.space):
        position = (tenant.c + index) % tenant.space
        if position not in members:
            yield position
