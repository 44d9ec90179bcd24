"""Exponentially weighted moving averages of rates and levels, with a half-life.

Times are seconds of a monotonic clock; amounts with an earlier time than the last are ignored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SAMPLE_SECONDS_MIN = 1.0
"""Amounts within this time are summed before they enter the rate."""


@dataclass(slots=True)
class RateEstimator:
    """Estimates a rate per second from amounts. An amount enters the rate at least one second after the last update."""

    half_life_s: float
    last_s: float
    pending: float = 0.0
    rate: float = 0.0

    def add(self, amount: float, now_s: float) -> None:
        """Add an amount at a time."""
        elapsed = now_s - self.last_s
        if elapsed < 0:
            return
        if elapsed >= SAMPLE_SECONDS_MIN:
            self.rate = _blend(self.rate, self.pending / elapsed, elapsed, self.half_life_s)
            self.pending = 0.0
            self.last_s = now_s
        self.pending += amount

    def value(self, now_s: float) -> float:
        """Return the rate per second at a time, without changing the state."""
        elapsed = now_s - self.last_s
        if elapsed < SAMPLE_SECONDS_MIN:
            return self.rate
        return _blend(self.rate, self.pending / elapsed, elapsed, self.half_life_s)


def smoothed_level(level: float, sample: float, elapsed_s: float, half_life_s: float) -> float:
    """Return the average of a level (not a rate) after a new sample; it converges to a constant sample."""
    return _blend(level, sample, max(0.0, elapsed_s), half_life_s)


def format_rate(rate: float) -> str:
    """Return the text of a rate in bytes/s."""
    if rate < 1024:
        return f"{rate:.0f} B/s"
    return f"{rate / (1 << 20):.1f} MiB/s" if rate >= 1 << 20 else f"{rate / 1024:.0f} KiB/s"


def _blend(old: float, new: float, elapsed_s: float, half_life_s: float) -> float:
    weight = -math.expm1(-elapsed_s * math.log(2) / max(1.0, half_life_s))
    return weight * new + (1 - weight) * old
