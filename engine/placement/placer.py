"""Decisions of a distributor: the shard of a profile, and the instances that may write it, in order of preference.

A ``Placer(ring, rules, zone="", seed=0)`` is immutable; a change of ring or rules needs a new one. ``decide(tenant,
dataset, fingerprint)`` returns a ``Decision`` with ``shard`` (from 1), ``position``, ``instance`` (the first
candidate), ``dataset_shards`` (the number of shards of the dataset), and two lazy iterators: ``order()`` yields every
position of the ring once, ``candidates()`` every allowed instance once. The shard does not depend on which candidate
writes it. Raises EmptyRing, and NoInstance if no allowed instance is active.

Instances of the distributor's zone come first; others follow if the tenant's limits allow it. A decision costs two
dictionary lookups and two or three divisions; the placement of a dataset is cached at its first decision. ``check()``
compares every cached placement with the definition.

``LITHIFY_PURE=1`` selects the pure-Python implementation, which type checkers use as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.placement._placer_py import Decision, Placer
else:
    Decision, Placer = load_kernel("engine.placement._placer", "Decision", "Placer")

__all__ = ["Decision", "Placer"]
