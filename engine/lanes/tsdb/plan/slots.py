"""Slots of a range, which start at its multiples (also before 1970), and the calendar of all slots of a period."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from engine.lanes.tsdb.plan.model import IntervalBlock, SlotProgress, SlotState
from engine.schedule.errors import SnapshotRefused

CELLS_MAX = 10_000
URGENCY = tuple(map(SlotState, ("parked", "too-large", "running", "ready", "waiting", "done", "empty")))
"""Display order: of the states of a tenant's group keys in one interval, the first of these is shown."""

_RANK = {state: rank for rank, state in enumerate(URGENCY)}


def slot_start(time_ms: int, range_ms: int) -> int:
    """Return the start of the slot that contains a time."""
    return time_ms // range_ms * range_ms


def fits(min_time_ms: int, max_time_ms: int, range_ms: int) -> bool:
    """Return whether a block lies in one slot of the range."""
    return max_time_ms <= slot_start(min_time_ms, range_ms) + range_ms


def range_of(block: IntervalBlock, ranges_ms: Sequence[int]) -> int | None:
    """Return the index of the range that a block belongs to, None if it fits no slot.

    This is the recorded range of the group that produced it if it fits, otherwise the smallest range it fits.
    """
    made_ms = block.time_range_ms if block.level > 1 else None
    first_ms, end_ms = block.min_time_ms, block.max_time_ms
    if made_ms is not None:
        for position, range_ms in enumerate(ranges_ms):
            if range_ms >= made_ms and end_ms <= first_ms // range_ms * range_ms + range_ms:  # inlined fits()
                return position
    for position, range_ms in enumerate(ranges_ms):
        if fits(first_ms, end_ms, range_ms):
            return position
    return None


def calendar(slots: Iterable[SlotProgress], range_ms: int, *, first_ms: int, last_ms: int) -> list[SlotProgress]:
    """Return one entry per slot of the range from ``first_ms`` to ``last_ms``, combined over all group keys.

    The entries have group key "". Slots outside the period and of other ranges are ignored. Raises SnapshotRefused for
    more than ``CELLS_MAX`` entries, since block times are untrusted.
    """
    starts = range(slot_start(first_ms, range_ms), slot_start(last_ms, range_ms) + 1, range_ms)
    if len(starts) > CELLS_MAX:
        raise SnapshotRefused(f"a calendar of {len(starts)} intervals exceeds the limit of {CELLS_MAX}")
    cells = {
        start_ms: SlotProgress(group_key="", range_ms=range_ms, start_ms=start_ms, state=SlotState.EMPTY)
        for start_ms in starts
    }
    for slot in slots:
        cell = cells.get(slot.start_ms) if slot.range_ms == range_ms else None
        if cell is not None:
            cells[slot.start_ms] = replace(
                cell,
                state=min(cell.state, slot.state, key=_RANK.__getitem__),
                blocks=cell.blocks + slot.blocks,
                waiting=cell.waiting + slot.waiting,
                compactions=cell.compactions + slot.compactions,
            )
    return list(cells.values())
