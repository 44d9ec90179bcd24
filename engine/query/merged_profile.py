"""Encode the merged stacks of a query as one pprof profile.

Source: ``docs/reference/formats/profile-api.md``, "pprof answer".
"""

from __future__ import annotations

from engine.formats.pprof.pprof_encode import encode_profile
from engine.query.flame.pprof_tree import pprof_profile
from engine.query.flame.tree import FlameTree
from engine.query.model import NANOS_PER_MS, TIME_MAX_MS, type_id

PERIODS = {"process_cpu": 1_000_000_000, "memory": 524_288}
"""Periods that viewers expect, by the first part of the profile type id; 1 for others."""


def merged_profile(tree: FlameTree, profile_type: str, end_ms: int, *, max_nodes: int = 0, compress: bool) -> bytes:
    """Return a tree of places (``location_table``) as a pprof file, dated at the range's end; b"" for an empty tree.

    ``max_nodes`` cuts the tree first (below 1: not at all). Raises InvalidQuestion for a type that is none, and
    LimitExceeded if the profile would be too large.
    """
    if not tree.total:
        return b""
    name, sample_type, sample_unit, period_type, period_unit = type_id(profile_type).split(":")
    profile = pprof_profile(
        tree,
        sample_type=(sample_type, sample_unit),
        period_type=(period_type, period_unit),
        period=PERIODS.get(name, 1),
        time_ns=max(0, min(end_ms, TIME_MAX_MS)) * NANOS_PER_MS,
        max_nodes=max_nodes,
    )
    return encode_profile(profile, compress=compress)
