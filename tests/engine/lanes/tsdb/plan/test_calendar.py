"""Intervals as a calendar: none is left out, and the keys of a tenant are seen together."""

from __future__ import annotations

import pytest

from engine.core.formatting import format_duration, format_time
from engine.lanes.tsdb.plan.model import SlotProgress, SlotState
from engine.lanes.tsdb.plan.plan import plan_intervals
from engine.lanes.tsdb.plan.policy import HOUR_MS, IntervalPolicy
from engine.lanes.tsdb.plan.slots import URGENCY, calendar
from engine.schedule.errors import SnapshotRefused
from tests.engine.lanes.tsdb.plan.block_texts import LATER_MS, blocks


def slot(start: int, state: str, *, key: str = "", range_ms: int = 10, **numbers: int) -> SlotProgress:
    return SlotProgress(group_key=key, range_ms=range_ms, start_ms=start, state=SlotState(state), **numbers)


def test_every_interval_of_the_stretch_is_there_with_the_most_urgent_state_of_all_keys() -> None:
    slots = [
        slot(-10, "done", key="e1", blocks=2),
        slot(-10, "ready", key="e2", blocks=3, waiting=3, compactions=1),
        slot(10, "waiting", key="e1", blocks=1),
        slot(10, "done", key="e2", blocks=1),
        slot(0, "running", range_ms=20),
        slot(30, "running"),
    ]
    assert calendar(slots, 10, first_ms=-1, last_ms=29) == [
        slot(-10, "ready", blocks=5, waiting=3, compactions=1),
        slot(0, "empty"),
        slot(10, "waiting", blocks=2),
        slot(20, "empty"),
    ]
    assert set(URGENCY) == set(SlotState)


def test_a_calendar_of_too_many_intervals_is_refused() -> None:
    assert len(calendar([], 10, first_ms=0, last_ms=99_999)) == 10_000
    with pytest.raises(SnapshotRefused, match="10001 intervals"):
        calendar([], 10, first_ms=0, last_ms=100_000)


def test_a_plan_can_be_shown() -> None:
    found = plan_intervals("A", blocks("e1:0-2 e2:0-2 e2:0-2 e1:4-6"), IntervalPolicy(), now_ms=LATER_MS)
    cells = calendar(found.slots, 2 * HOUR_MS, first_ms=0, last_ms=5 * HOUR_MS)
    assert [(str(cell.state), cell.blocks) for cell in cells] == [("ready", 3), ("empty", 0), ("done", 1)]


def test_times_and_lengths_are_formatted_for_people() -> None:
    hour = HOUR_MS
    assert [format_duration(size) for size in (2 * hour, 12 * hour, 24 * hour, 48 * hour, 90_000, 60_000, 20, 0)] == [
        *("2 h", "12 h", "24 h", "2 d", "90 s", "1 min", "20 ms", "0 ms")
    ]
    assert format_time(0) == "1970-01-01 00:00 UTC"
    assert format_time(-1) == "1969-12-31 23:59:59 UTC"
    assert format_time(1 << 62) == f"{1 << 62} ms", "no calendar reaches there"
