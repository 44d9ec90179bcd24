"""States of a block and their transitions."""

from __future__ import annotations

from django.db import models


class BlockState(models.TextChoices):
    """Every live block is in exactly one of the first four states."""

    QUEUED = "queued", "queued"  # in the queue of its tenant, shard and level
    OWNED = "owned", "owned"  # a source of exactly one job
    PARKED = "parked", "parked"  # excluded from compaction with a reason, still read by queries
    FINAL = "final", "final"  # of the highest level: not merged again
    REPLACED = "replaced", "replaced"  # its results are live; its object waits for deletion
    DROPPED = "dropped", "dropped"  # past retention, or deleted on request; its object waits for deletion
    DELETED = "deleted", "deleted"  # its object is deleted; the row is history


LIVE_STATES = (BlockState.QUEUED, BlockState.OWNED, BlockState.PARKED, BlockState.FINAL)
"""The states in which queries read a block."""

ALLOWED_MOVES: dict[BlockState, frozenset[BlockState]] = {
    BlockState.QUEUED: frozenset({BlockState.OWNED, BlockState.PARKED, BlockState.DROPPED}),
    BlockState.OWNED: frozenset(
        {BlockState.REPLACED, BlockState.QUEUED, BlockState.FINAL, BlockState.PARKED, BlockState.DROPPED}
    ),
    BlockState.PARKED: frozenset({BlockState.QUEUED, BlockState.DROPPED}),
    BlockState.FINAL: frozenset({BlockState.OWNED, BlockState.DROPPED}),
    BlockState.REPLACED: frozenset({BlockState.DELETED}),
    BlockState.DROPPED: frozenset({BlockState.DELETED}),
    BlockState.DELETED: frozenset(),
}
