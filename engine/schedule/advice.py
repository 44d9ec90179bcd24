"""Says how many workers, and how much memory and disk, a load needs. Pure: what was counted goes in, advice comes out.

The sketch: every byte that arrives at any level is merged once at the measured cost, so arrivals times cost is the
number of job slots that are busy all the time. Slots are not loaded beyond TARGET_LOAD, because work comes in bursts;
a backlog gets slots of its own so that it is gone in the time asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

TARGET_LOAD = 0.7
"""Share of its time a slot may be busy: beyond that queues grow with every burst."""
PROCESS_BYTES = 1536 << 20
"""A node without work: Celery, Spark's Java machine and its Python workers."""
SCRATCH_FACTOR = 2.5
"""Bytes on a node's disk per source byte of a running job: results, sorted runs, and what is being replaced."""
SOURCE_BYTES_MIN = 64 << 20
"""Of a job, where none was seen yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What was counted. ``job_bytes_max`` is the largest job seen or allowed."""

    arrived_bytes_per_second: float
    seconds_per_byte: float
    is_measured: bool
    backlog_bytes: int
    job_bytes_max: int
    task_memory_bytes: int
    cleanup_delay_seconds: int
    offered_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What the load needs, on nodes of ``slots_per_node`` job slots. Sizes are bytes."""

    steady_slots: float
    backlog_slots: float
    slots: int
    nodes: int
    slots_per_node: int
    memory_per_node: int
    scratch_per_node: int
    replaced_bytes: int
    is_measured: bool
    notes: tuple[str, ...]


def advise(load: Load, *, clear_seconds: int, slots_per_node: int) -> Advice:
    """Return what keeps up with the load and clears its backlog within ``clear_seconds``."""
    steady = load.arrived_bytes_per_second * load.seconds_per_byte / TARGET_LOAD
    backlog = load.backlog_bytes * load.seconds_per_byte / clear_seconds
    slots = max(1, math.ceil(steady + backlog))
    job_bytes = max(load.job_bytes_max, SOURCE_BYTES_MIN)
    return Advice(
        steady_slots=steady,
        backlog_slots=backlog,
        slots=slots,
        nodes=math.ceil(slots / slots_per_node),
        slots_per_node=slots_per_node,
        memory_per_node=PROCESS_BYTES + slots_per_node * load.task_memory_bytes,
        scratch_per_node=math.ceil(slots_per_node * job_bytes * SCRATCH_FACTOR),
        replaced_bytes=math.ceil(load.arrived_bytes_per_second * load.cleanup_delay_seconds),
        is_measured=load.is_measured,
        notes=tuple(_notes(load, slots)),
    )


def _notes(load: Load, slots: int) -> list[str]:
    notes = []
    if not load.is_measured:
        notes.append("no merge was measured yet: the cost of a byte is assumed, ask again after some have run")
    if load.arrived_bytes_per_second == 0:
        notes.append("nothing arrived in the time that was looked at: this is for the backlog alone")
    if load.offered_slots and load.offered_slots < slots:
        notes.append(f"polling workers have {load.offered_slots} slots, which is {slots - load.offered_slots} too few")
    return notes
