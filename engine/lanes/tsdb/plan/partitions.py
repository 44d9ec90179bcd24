"""Number of partitions of a group by series hash, and overlap between partitions.

Partition i of n holds the series whose hash modulo n is i. Chosen counts are powers of two, so that partitions of
different counts nest: a partitioned block is read only by the partitions that can have its series.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.lanes.tsdb.plan.model import IntervalBlock, may_overlap_partition
from engine.lanes.tsdb.plan.policy import IntervalPolicy

PARTITIONS_MAX = 1 << 12
"""More partitions would cost more than they gain."""
SERIES_ENTRY_BYTES = 16
"""Minimum index bytes of a series, the alignment of its entries."""


def partition_count(blocks: Sequence[IntervalBlock], policy: IntervalPolicy, range_ms: int) -> int:
    """Return the number of partitions for a group of these blocks: the larger one of both limits.

    Index sizes are summed up to the first unknown one.
    """
    times = policy.replication if range_ms <= policy.ranges_ms[0] else 1
    count = 1
    if policy.partition_index_bytes:
        total = 0
        for block in blocks:
            if block.index_bytes is None:
                break
            total += block.index_bytes
        count = power_of_two_count(total, policy.partition_index_bytes * times)
    if policy.partition_series:
        count = max(
            count, power_of_two_count(sum([_series(block) for block in blocks]), policy.partition_series * times)
        )
    return count


def _series(block: IntervalBlock) -> int:
    """Return the number of series of a block, limited by what its index can hold."""
    return block.series if block.index_bytes is None else min(block.series, block.index_bytes // SERIES_ENTRY_BYTES)


def power_of_two_count(total: int, limit: int) -> int:
    """Return the smallest power of two of partitions of at most ``limit`` that hold ``total``; 1 for a limit of 0."""
    count = 1
    while limit and count * limit < total and count < PARTITIONS_MAX:
        count *= 2
    return count


def are_disjoint(parts: Sequence[tuple[int, int]]) -> bool:
    """Return whether no two of these (partition, partitions) can hold the same series."""
    counts = {count for _, count in parts}
    if len(parts) > 1 and 1 in counts:
        return False
    if len(counts) == 1:
        return len(set(parts)) == len(parts)
    return not any(
        may_overlap_partition(*one, *other) for position, one in enumerate(parts) for other in parts[position + 1 :]
    )
