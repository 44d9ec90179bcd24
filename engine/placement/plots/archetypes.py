"""The four archetypes of load over a day: what a dataset writes, and how many shards it gets.

Parameters are those of the origin's archived simulations: units of 512 KiB/s, 1 to 32 shards, half-life 180 s,
statistics every 10 s, a look every 30 s, windows of 63 and 67 minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from engine.placement.allocator import Allocation, allocate
from engine.placement.model import TenantLimits
from engine.placement.plots.chart import Line, line_chart
from engine.placement.plots.traces import (
    NEED_COLOUR,
    ORIGIN_COLOUR,
    OURS_COLOUR,
    START_S,
    TRACES,
    USAGE_COLOUR,
    trace_plot,
    window_allocator,
)
from engine.placement.rate import RateEstimator

MIB = 1 << 20
HOUR_S = 3600
DAY_S = 24 * HOUR_S
SAMPLE_S, LOOK_S = 10, 30
HALF_LIFE_S = 180.0
LIMITS = TenantLimits(unit_bytes=512 << 10, dataset_shards_max=32, burst_window_s=63 * 60.0, decay_window_s=67 * 60.0)


def steady_front(second: float) -> float:
    """Six hours up to 10 MiB/s, six hours there, six hours down."""
    return 10 * MIB * max(0.0, min(1.0, second / (6 * HOUR_S), (18 * HOUR_S - second) / (6 * HOUR_S)))


def steep_front(second: float) -> float:
    """From half a MiB/s to 12 within a minute, and back ten hours later."""
    rise = min(1.0, max(0.0, (second - 4 * HOUR_S) / 60))
    fall = min(1.0, max(0.0, (second - 14 * HOUR_S) / 60))
    return MIB * (0.5 + 11.5 * (rise - fall))


def extreme_spikes(second: float) -> float:
    """Half a MiB/s, and 14 for two minutes every three hours."""
    return 14.0 * MIB if second % (3 * HOUR_S) < 120 and second > 0 else 0.5 * MIB


def low_rate_oscillations(second: float) -> float:
    """Around one MiB/s, up and down within forty minutes."""
    return MIB * (1 + 0.9 * math.sin(2 * math.pi * second / 2400))


ARCHETYPES: dict[str, Callable[[float], float]] = {
    "steady front": steady_front,
    "steep front": steep_front,
    "extreme spikes": extreme_spikes,
    "low-rate oscillations": low_rate_oscillations,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One look after another: what was written, what was needed for it, and what both allocators gave."""

    hours: list[float]
    written: list[float]
    needed: list[int]
    ours: list[int]
    origin: list[int]

    def over_allocation(self, shards: list[int]) -> float:
        """Return shards given over shards needed, over the whole day."""
        return sum(shards) / sum(self.needed)

    def is_short(self, shards: list[int]) -> float:
        """Return the share of looks at which there were fewer shards than needed."""
        pairs = zip(shards, self.needed, strict=True)
        return sum(given < needed for given, needed in pairs) / len(shards)


def simulate_day(load: Callable[[float], float], limits: TenantLimits = LIMITS) -> Day:
    """Let both allocators follow a load, each through the same estimate of it."""
    estimator, ours, origin = RateEstimator(HALF_LIFE_S, START_S), Allocation(), window_allocator(limits)
    day = Day(hours=[], written=[], needed=[], ours=[], origin=[])
    for second in range(0, DAY_S + 1, SAMPLE_S):
        rate, now_s = load(second), START_S + second
        estimator.add(rate * SAMPLE_S, now_s)
        if second % LOOK_S:
            continue
        usage = round(estimator.value(now_s))
        ours, origin = allocate(ours, usage, now_s, limits), origin.observe(usage, now_s)
        day.hours.append(second / HOUR_S)
        day.written.append(rate / limits.unit_bytes)
        day.needed.append(min(limits.dataset_shards_max, int(rate) // limits.unit_bytes + 1))
        day.ours.append(ours.target)
        day.origin.append(origin.target)
    return day


def archetype_plot(name: str) -> str:
    """Return the picture of an archetype's day; KeyError for a name that is none."""
    day = simulate_day(ARCHETYPES[name])
    ours, origin = day.over_allocation(day.ours), day.over_allocation(day.origin)
    return line_chart(
        f"{name}: {ours:.2f} shards for one that is needed, the origin {origin:.2f}",
        "hours",
        day.hours,
        [
            Line(label="written (units)", colour=USAGE_COLOUR, values=day.written),
            Line(label="shards needed", colour=NEED_COLOUR, values=day.needed, is_step=True),
            Line(label="shards, origin", colour=ORIGIN_COLOUR, values=day.origin, is_step=True),
            Line(label="shards, ours", colour=OURS_COLOUR, values=day.ours, is_step=True),
        ],
    )


def all_plots() -> dict[str, str]:
    """Return every picture by the name of its file, without a suffix."""
    pictures = {f"trace-{trace.name.replace(' ', '-')}": trace_plot(trace) for trace in TRACES}
    return pictures | {f"load-{name.replace(' ', '-')}": archetype_plot(name) for name in ARCHETYPES}
