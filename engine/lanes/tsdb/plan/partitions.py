"""Into how many parts a group is cut by series hash, and which part of it each block holds something for.

Part i of n holds the series whose hash is i modulo n. Counts are powers of two where we choose them, so that parts of
different counts nest: a block that was cut before is read by the parts that can have its series, and by no other.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.lanes.tsdb.plan.model import IntervalBlock, holds_part_of
from engine.lanes.tsdb.plan.policy import IntervalPolicy

PARTITIONS_MAX = 1 << 12
"""Above that, parts would cost more than they spread."""
SERIES_ENTRY_BYTES = 16
"""What a series takes of an index at least: its place in it is counted in steps of so many."""


def partition_count(blocks: Sequence[IntervalBlock], policy: IntervalPolicy, range_ms: int) -> int:
    """Return the number of parts for a group of these blocks: what the tighter of both limits asks for.

    Index sizes are summed up to the first that nobody knows.
    """
    times = policy.replication if range_ms <= policy.ranges_ms[0] else 1
    count = 1
    if policy.partition_index_bytes:
        total = 0
        for block in blocks:
            if block.index_bytes is None:
                break
            total += block.index_bytes
        count = doublings(total, policy.partition_index_bytes * times)
    if policy.partition_series:
        count = max(count, doublings(sum([_series(block) for block in blocks]), policy.partition_series * times))
    return count


def _series(block: IntervalBlock) -> int:
    """Return how many series a block says it has, at most as many as its index has room for."""
    return block.series if block.index_bytes is None else min(block.series, block.index_bytes // SERIES_ENTRY_BYTES)


def doublings(total: int, limit: int) -> int:
    """Return the smallest power of two of parts of at most ``limit`` that hold ``total``; 1 for a limit of 0."""
    count = 1
    while limit and count * limit < total and count < PARTITIONS_MAX:
        count *= 2
    return count


def are_disjoint(parts: Sequence[tuple[int, int]]) -> bool:
    """Say whether no two of these (partition, partitions) can hold the same series."""
    counts = {count for _, count in parts}
    if len(parts) > 1 and 1 in counts:
        return False
    if len(counts) == 1:
        return len(set(parts)) == len(parts)
    return not any(holds_part_of(*one, *other) for position, one in enumerate(parts) for other in parts[position + 1 :])
