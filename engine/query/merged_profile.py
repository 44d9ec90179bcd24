"""The merged stacks of a question as one pprof profile. Source: profile API format sheet, section 5.10."""

from __future__ import annotations

from engine.formats.pprof.pprof_encode import encode_profile
from engine.query.flame.pprof_tree import pprof_profile
from engine.query.flame.tree import FlameTree
from engine.query.model import NANOS_PER_MS, TIME_MAX_MS, type_id

PERIODS = {"process_cpu": 1_000_000_000, "memory": 524_288}
"""By the first part of the type's id: what viewers of such profiles expect, not what the senders had. Others: 1."""


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
