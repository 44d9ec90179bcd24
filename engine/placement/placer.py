"""A distributor's decisions: the shard of a profile, and the instances that may write it, best first.

``Placer(ring, rules, zone="", seed=0)`` is made anew whenever ring or rules change; ``decide(tenant, dataset,
fingerprint)`` returns a ``Decision`` with ``shard`` (from 1), ``position``, ``instance`` (the one to send to),
``dataset_shards`` (how many the dataset has), and two iterators that cost nothing unless they are used: ``order()``
yields every position of the ring once, ``candidates()`` every instance that may take the profile once. The shard stays
whoever writes it. Raises EmptyRing, and NoInstance if nobody is active where the profile may go.

Instances of the distributor's own zone come first; others follow if the tenant's limits allow it. Cost: one dictionary
of a tenant and one of a dataset, two or three divisions; a dataset's place is computed at its first decision.
``check()`` compares every remembered place with the definition.

``LITHIFY_PURE=1`` chooses the plain twin, which is also what type checkers see.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.placement._placer_py import Decision, Placer

    IMPLEMENTATION = "python"
else:
    try:
        from engine.placement._placer import Decision, Placer

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.placement._placer_py import Decision, Placer

        IMPLEMENTATION = "python"

__all__ = ["IMPLEMENTATION", "Decision", "Placer"]
