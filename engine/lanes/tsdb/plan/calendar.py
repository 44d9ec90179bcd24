"""The slots of one range as a calendar: every interval of a stretch of time, also those without any block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.lanes.tsdb.plan.model import SlotProgress, SlotState
from engine.lanes.tsdb.plan.slots import slot_start
from engine.schedule.errors import SnapshotRefused

CELLS_MAX = 10_000
URGENCY = tuple(map(SlotState, ("parked", "too-large", "running", "ready", "waiting", "done", "empty")))
"""Of the states that the group keys of a tenant have in one interval, the first of these is shown."""

_RANK = {state: rank for rank, state in enumerate(URGENCY)}


def calendar(slots: Iterable[SlotProgress], range_ms: int, *, first_ms: int, last_ms: int) -> list[SlotProgress]:
    """Return one entry for every slot of the range from that of ``first_ms`` to that of ``last_ms``, all keys together.

    Their group key is "". Slots outside the stretch, and of other ranges, are left out. Raises SnapshotRefused for more
    than ``CELLS_MAX`` entries: times of blocks may be anything.
    """
    starts = range(slot_start(first_ms, range_ms), slot_start(last_ms, range_ms) + 1, range_ms)
    if len(starts) > CELLS_MAX:
        raise SnapshotRefused(f"a calendar of {len(starts)} intervals: ask for {CELLS_MAX} at most")
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
