"""How many workers a load needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedule.advice import PROCESS_BYTES, SOURCE_BYTES_MIN, Load, advise

MIB = 1 << 20
LOAD = Load(
    arrived_bytes_per_second=7 * MIB,
    seconds_per_byte=1 / MIB,
    is_measured=True,
    backlog_bytes=0,
    job_bytes_max=100 * MIB,
    task_memory_bytes=512 * MIB,
    cleanup_delay_seconds=900,
    offered_slots=10,
)


def test_arrivals_times_cost_are_the_slots_with_room_for_bursts() -> None:
    advice = advise(LOAD, clear_seconds=3600, slots_per_node=4)
    assert (advice.slots, advice.nodes, advice.notes) == (10, 3, ())
    assert advice.memory_per_node == PROCESS_BYTES + 4 * 512 * MIB
    assert advice.scratch_per_node == 1000 * MIB
    assert advice.replaced_bytes == 900 * 7 * MIB


def test_a_backlog_gets_slots_of_its_own() -> None:
    advice = advise(replace(LOAD, backlog_bytes=3600 * 5 * MIB), clear_seconds=3600, slots_per_node=4)
    assert advice.backlog_slots == pytest.approx(5)
    assert advice.slots == 15
    assert advice.notes == ("polling workers have 10 slots, which is 5 too few",)


def test_an_idle_installation_needs_one_slot_and_gets_the_assumptions() -> None:
    idle = replace(LOAD, arrived_bytes_per_second=0, job_bytes_max=0, is_measured=False, offered_slots=0)
    advice = advise(idle, clear_seconds=60, slots_per_node=2)
    assert (advice.slots, advice.nodes) == (1, 1)
    assert advice.scratch_per_node == SOURCE_BYTES_MIN * 5
    assert len(advice.notes) == 2


@given(
    arrived=st.floats(0, 1e9),
    backlog=st.integers(0, 1 << 45),
    more=st.integers(0, 1 << 40),
    clear=st.integers(60, 86_400),
    per_node=st.integers(1, 64),
)
def test_more_work_never_needs_less(arrived: float, backlog: int, more: int, clear: int, per_node: int) -> None:
    load = replace(LOAD, arrived_bytes_per_second=arrived, backlog_bytes=backlog)
    less = advise(load, clear_seconds=clear, slots_per_node=per_node)
    larger = advise(replace(load, backlog_bytes=backlog + more), clear_seconds=clear, slots_per_node=per_node)
    assert larger.slots >= less.slots >= 1
    assert less.nodes * per_node >= less.slots
