"""Traces A to F of ``docs/reference/placement-rules.md``: shards by both allocators for the same usage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.placement.allocator import Allocation, allocate
from engine.placement.model import DEFAULT_LIMITS, TenantLimits
from engine.placement.plots.chart import Line, line_chart
from engine.placement.reference import WindowAllocator

UNIT = DEFAULT_LIMITS.unit_bytes
START_S = 1_000_000.0
"""The reference allocator treats the time 0 as "never", so no trace starts there."""
USAGE_COLOUR, OURS_COLOUR, REFERENCE_COLOUR, NEED_COLOUR = "#888888", "#1f6fb4", "#c4541b", "#4a9a4a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Observed usages: pairs of seconds and bytes/s, with the limits in force."""

    name: str
    steps: tuple[tuple[float, int], ...]
    limits: TenantLimits = field(default_factory=TenantLimits)

    def ours(self) -> list[int]:
        """Return Lithify's number of shards after each step."""
        state, found = Allocation(), []
        for second, usage in self.steps:
            state = allocate(state, usage, START_S + second, self.limits)
            found.append(state.target)
        return found

    def reference(self) -> list[int]:
        """Return the reference algorithm's number of shards after each step."""
        state, found = window_allocator(self.limits), []
        for second, usage in self.steps:
            state = state.observe(usage, START_S + second)
            found.append(state.target)
        return found


def window_allocator(limits: TenantLimits) -> WindowAllocator:
    """Return the reference allocator with these limits."""
    return WindowAllocator(
        unit_bytes=limits.unit_bytes,
        shards_min=limits.dataset_shards_min,
        shards_max=limits.dataset_shards_max,
        burst_window_s=limits.burst_window_s,
        decay_window_s=limits.decay_window_s,
    )


def _every_tick(until_s: int, units: Mapping[int, float]) -> tuple[tuple[float, int], ...]:
    """Return a usage every 15 s; ``units`` maps seconds to the value from then on."""
    steps, usage = [], 0
    for second in range(0, until_s + 1, 15):
        usage = int(units[second] * UNIT) if second in units else usage
        steps.append((float(second), usage))
    return tuple(steps)


TRACES = (
    Trace(name="A step", steps=_every_tick(3600, {0: 0.78, 60: 8})),
    Trace(name="B ramp", steps=_every_tick(3600, {15 * step: step for step in range(12)} | {180: 0})),
    Trace(name="C spike", steps=_every_tick(3600, {0: 0.5, 15: 20, 30: 0.5})),
    Trace(name="D slow growth", steps=_every_tick(9600, {1200 * step: step for step in range(8)})),
    Trace(
        name="E at the maximum",
        steps=_every_tick(3600, {15 * step: 2 * step for step in range(10)} | {150: 0}),
        limits=TenantLimits(dataset_shards_max=10),
    ),
    Trace(
        name="F at the minimum",
        steps=_every_tick(3600, {0: 0, 15: 6, 30: 0}),
        limits=TenantLimits(dataset_shards_min=5),
    ),
)


def trace_plot(trace: Trace) -> str:
    """Return the plot of a trace as SVG: usage in units, shards of both allocators."""
    return line_chart(
        f"Trace {trace.name}",
        "minutes",
        [second / 60 for second, _ in trace.steps],
        [
            Line(label="usage (units)", colour=USAGE_COLOUR, values=[usage / UNIT for _, usage in trace.steps]),
            Line(label="shards, reference", colour=REFERENCE_COLOUR, values=trace.reference(), is_step=True),
            Line(label="shards, ours", colour=OURS_COLOUR, values=trace.ours(), is_step=True),
        ],
    )
