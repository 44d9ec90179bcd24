"""The rules of Cortex' shuffle-sharding grouper, and the grouping by range that other rules share.

See ``docs/reference/time-interval-compaction.md``.

1. Two or more blocks that fit a slot form its group. A group is dropped if its slot overlaps that of a group of a
   smaller range: smaller groups come first, whatever they hold.
2. A group is kept if a newer block exists, or its blocks span the slot exactly, or one whole range has passed.
3. Shorter spans come first, then older ones, then by key. (``plan.py`` skips groups with marked blocks and applies the
   limit of groups.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.lanes.tsdb.plan.model import IntervalBlock, IntervalGroup
from engine.lanes.tsdb.plan.policy import IntervalPolicy
from engine.lanes.tsdb.plan.slots import fits, slot_start

RangeGroup = tuple[int, int, list[IntervalBlock]]
"""Range, start of the slot, and its blocks ordered by start."""


def plan_reference(
    tenant: str, blocks: Iterable[IntervalBlock], policy: IntervalPolicy, *, now_ms: int
) -> list[IntervalGroup]:
    """Return the complete groups in order."""
    by_key: dict[str, list[IntervalBlock]] = {}
    for block in blocks:
        by_key.setdefault(block.group_key, []).append(block)
    groups = [
        IntervalGroup(tenant=tenant, group_key=key, range_ms=range_ms, start_ms=start_ms, blocks=tuple(members))
        for key, of_key in by_key.items()
        for range_ms, start_ms, members in range_groups(of_key, policy.ranges_ms)
        if is_complete(members, range_ms, start_ms, max(block.min_time_ms for block in of_key), now_ms)
    ]
    return sorted(groups, key=_order)


def range_groups(blocks: Iterable[IntervalBlock], ranges_ms: Sequence[int]) -> list[RangeGroup]:
    """Return the groups of two or more blocks of one key, smaller ranges first; none overlaps a smaller one."""
    ordered = sorted(blocks, key=lambda block: (block.min_time_ms, block.ulid))
    kept: list[RangeGroup] = []
    for range_ms in ranges_ms:
        occupied = {slot_start(start_ms, range_ms) for _, start_ms, _ in kept}  # ranges are multiples
        for start_ms, members in slots_of(ordered, range_ms).items():
            if len(members) > 1 and start_ms not in occupied:
                kept.append((range_ms, start_ms, members))
    return kept


def slots_of(blocks: Iterable[IntervalBlock], range_ms: int) -> dict[int, list[IntervalBlock]]:
    """Return the blocks that fit a slot of the range, by slot start; the order of blocks is kept."""
    slots: dict[int, list[IntervalBlock]] = {}
    for block in blocks:
        if fits(block.min_time_ms, block.max_time_ms, range_ms):
            slots.setdefault(slot_start(block.min_time_ms, range_ms), []).append(block)
    return slots


def is_complete(
    blocks: Sequence[IntervalBlock], range_ms: int, start_ms: int, newest_start_ms: int, now_ms: int
) -> bool:
    """Return whether a slot is complete; ``newest_start_ms`` is the latest start of a block of the key."""
    first_ms = min(block.min_time_ms for block in blocks)
    last_ms = max(block.max_time_ms for block in blocks)
    is_followed = start_ms + range_ms <= newest_start_ms
    return is_followed or last_ms - first_ms == range_ms or now_ms > last_ms + range_ms


def _order(group: IntervalGroup) -> tuple[int, int, str, int]:
    first_ms = min(block.min_time_ms for block in group.blocks)
    span_ms = max(block.max_time_ms for block in group.blocks) - first_ms
    return (span_ms, first_ms, group.group_key, group.range_ms)
