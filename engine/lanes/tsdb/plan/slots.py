"""Where blocks lie: slots of a range begin at multiples of it (also before 1970), and a block is of one range."""

from __future__ import annotations

from collections.abc import Sequence

from engine.lanes.tsdb.plan.model import IntervalBlock


def slot_start(time_ms: int, range_ms: int) -> int:
    """Return the start of the slot that holds a moment."""
    return time_ms // range_ms * range_ms


def fits(min_time_ms: int, max_time_ms: int, range_ms: int) -> bool:
    """Say whether a block lies in one slot of the range."""
    return max_time_ms <= slot_start(min_time_ms, range_ms) + range_ms


def range_of(block: IntervalBlock, ranges_ms: Sequence[int]) -> int | None:
    """Return the position of the range that a block belongs to; None if it fits into no slot at all.

    That is the range of the group that made it, if it says so and fits; otherwise the smallest into which it fits.
    """
    made_ms = block.time_range_ms if block.level > 1 else None
    first_ms, end_ms = block.min_time_ms, block.max_time_ms
    if made_ms is not None:
        for position, range_ms in enumerate(ranges_ms):
            if range_ms >= made_ms and end_ms <= first_ms // range_ms * range_ms + range_ms:  # fits, for speed
                return position
    for position, range_ms in enumerate(ranges_ms):
        if fits(first_ms, end_ms, range_ms):
            return position
    return None
