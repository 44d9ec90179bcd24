"""Estimate how many workers, and how much memory and disk, a load needs. No I/O.

Every byte that arrives at a level is merged once at the measured cost, so the arrival rate times the cost is the
average number of busy job slots. Slots are loaded up to TARGET_LOAD because work arrives in bursts. A backlog is
assigned additional slots that clear it in the requested time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

TARGET_LOAD = 0.7
"""Maximum utilisation of a slot; above it queues grow with every burst."""
PROCESS_BYTES = 1536 << 20
"""Memory of an idle node: Celery, the Spark JVM and its Python workers."""
SCRATCH_FACTOR = 2.5
"""Scratch disk bytes per source byte of a running job: results, sorted runs and files being replaced."""
SOURCE_BYTES_MIN = 64 << 20
"""Minimum assumed source bytes of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The observed load. ``job_bytes_max`` is the size of the largest job observed or allowed."""

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
    """Resources for the load on nodes with ``slots_per_node`` job slots. Sizes are bytes."""

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
    """Return the resources that sustain the load and clear its backlog within ``clear_seconds``."""
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
        notes.append("no merge was measured yet: the cost per byte is assumed; repeat this after some merges")
    if load.arrived_bytes_per_second == 0:
        notes.append("nothing arrived in the observed time: the result covers the backlog only")
    if load.offered_slots and load.offered_slots < slots:
        notes.append(f"polling workers have {load.offered_slots} slots, which is {slots - load.offered_slots} too few")
    return notes
