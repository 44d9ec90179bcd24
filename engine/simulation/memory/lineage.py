"""The lineage of a block, read from all rows of a history: an exact check in addition to the sums."""

from __future__ import annotations

from engine.simulation.memory.rows import MemoryBlock, Share
from engine.simulation.memory.schedule import MemorySchedule

Item = tuple[str, str, str]
"""A segment, a tenant and a service: that service's data in the segment."""


def items_in(schedule: MemorySchedule, block: MemoryBlock, share: Share) -> list[Item]:
    """Return the items in this part of a block, with duplicates."""
    if not block.sources:
        return [(block.ulid, share.tenant, share.service)]
    found: list[Item] = []
    for ulid in block.sources:
        source = schedule.blocks[ulid]
        if _was_left_out(schedule, source, block, share):
            continue
        for part in source.shares:
            if (part.tenant, part.service) == (share.tenant, share.service):
                found += items_in(schedule, source, part)
    return found


def ancestors(schedule: MemorySchedule, ulid: str) -> list[str]:
    """Return a block and all its sources, recursively, with duplicates."""
    found, waiting = [], [ulid]
    while waiting:
        found.append(waiting.pop())
        waiting.extend(schedule.blocks[found[-1]].sources)
    return found


def _was_left_out(schedule: MemorySchedule, source: MemoryBlock, result: MemoryBlock, share: Share) -> bool:
    return any(
        source.masks_applied < mask.index <= result.masks_applied
        for mask in schedule.masks
        if mask.tenant == share.tenant and mask.service in ("", share.service)
    )
