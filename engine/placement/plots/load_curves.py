"""Four load_curves of load over a day: the usage of a dataset and its number of shards.

The parameters are those of the archived simulations of the reference algorithm: units of 512 KiB/s, 1 to 32 shards,
half-life 180 s, statistics every 10 s, an allocation every 30 s, windows of 63 and 67 minutes.
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
    OURS_COLOUR,
    REFERENCE_COLOUR,
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
SAMPLE_S, ALLOCATION_S = 10, 30
HALF_LIFE_S = 180.0
LIMITS = TenantLimits(unit_bytes=512 << 10, dataset_shards_max=32, burst_window_s=63 * 60.0, decay_window_s=67 * 60.0)


def steady_front(second: float) -> float:
    """Return a rate that rises to 10 MiB/s for six hours, stays for six hours, and falls for six hours."""
    return 10 * MIB * max(0.0, min(1.0, second / (6 * HOUR_S), (18 * HOUR_S - second) / (6 * HOUR_S)))


def steep_front(second: float) -> float:
    """Return a rate that rises from 0.5 to 12 MiB/s within a minute and falls again ten hours later."""
    rise = min(1.0, max(0.0, (second - 4 * HOUR_S) / 60))
    fall = min(1.0, max(0.0, (second - 14 * HOUR_S) / 60))
    return MIB * (0.5 + 11.5 * (rise - fall))


def extreme_spikes(second: float) -> float:
    """Return a rate of 0.5 MiB/s, and of 14 MiB/s for two minutes every three hours."""
    return 14.0 * MIB if second % (3 * HOUR_S) < 120 and second > 0 else 0.5 * MIB


def low_rate_oscillations(second: float) -> float:
    """Return a rate that oscillates around 1 MiB/s with a period of 40 minutes."""
    return MIB * (1 + 0.9 * math.sin(2 * math.pi * second / 2400))


LOAD_CURVES: dict[str, Callable[[float], float]] = {
    "steady front": steady_front,
    "steep front": steep_front,
    "extreme spikes": extreme_spikes,
    "low-rate oscillations": low_rate_oscillations,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """Time series of usage, needed shards, and the shards of both allocators."""

    hours: list[float]
    written: list[float]
    needed: list[int]
    ours: list[int]
    reference: list[int]

    def over_allocation(self, shards: list[int]) -> float:
        """Return the allocated shards over the needed shards of the whole day."""
        return sum(shards) / sum(self.needed)

    def is_short(self, shards: list[int]) -> float:
        """Return the fraction of allocations with fewer shards than needed."""
        pairs = zip(shards, self.needed, strict=True)
        return sum(given < needed for given, needed in pairs) / len(shards)


def simulate_day(load: Callable[[float], float], limits: TenantLimits = LIMITS) -> Day:
    """Run both allocators on the same estimate of a load."""
    estimator, ours, reference = RateEstimator(HALF_LIFE_S, START_S), Allocation(), window_allocator(limits)
    day = Day(hours=[], written=[], needed=[], ours=[], reference=[])
    for second in range(0, DAY_S + 1, SAMPLE_S):
        rate, now_s = load(second), START_S + second
        estimator.add(rate * SAMPLE_S, now_s)
        if second % ALLOCATION_S:
            continue
        usage = round(estimator.value(now_s))
        ours, reference = allocate(ours, usage, now_s, limits), reference.observe(usage, now_s)
        day.hours.append(second / HOUR_S)
        day.written.append(rate / limits.unit_bytes)
        day.needed.append(min(limits.dataset_shards_max, int(rate) // limits.unit_bytes + 1))
        day.ours.append(ours.target)
        day.reference.append(reference.target)
    return day


def load_curve_plot(name: str) -> str:
    """Return the plot of an archetype as SVG. Raises KeyError for an unknown name."""
    day = simulate_day(LOAD_CURVES[name])
    ours, reference = day.over_allocation(day.ours), day.over_allocation(day.reference)
    return line_chart(
        f"{name}: {ours:.2f} shards per needed shard, reference {reference:.2f}",
        "hours",
        day.hours,
        [
            Line(label="written (units)", colour=USAGE_COLOUR, values=day.written),
            Line(label="shards needed", colour=NEED_COLOUR, values=day.needed, is_step=True),
            Line(label="shards, reference", colour=REFERENCE_COLOUR, values=day.reference, is_step=True),
            Line(label="shards, ours", colour=OURS_COLOUR, values=day.ours, is_step=True),
        ],
    )


def all_plots() -> dict[str, str]:
    """Return all plots by file name without suffix."""
    pictures = {f"trace-{trace.name.replace(' ', '-')}": trace_plot(trace) for trace in TRACES}
    return pictures | {f"load-{name.replace(' ', '-')}": load_curve_plot(name) for name in LOAD_CURVES}
