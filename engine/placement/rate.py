"""How fast bytes flow: a moving average with a half-life, fed with amounts or with levels.

Times are seconds of any clock that does not go back; an amount at an earlier time than the last is ignored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SAMPLE_SECONDS_MIN = 1.0
"""Amounts within one second are added up before they count as a rate."""


@dataclass(slots=True)
class RateEstimator:
    """Amounts in, a rate per second out. The amount added last is not in the rate before the next second."""

    half_life_s: float
    last_s: float
    pending: float = 0.0
    rate: float = 0.0

    def add(self, amount: float, now_s: float) -> None:
        """Count an amount at this time."""
        elapsed = now_s - self.last_s
        if elapsed < 0:
            return
        if elapsed >= SAMPLE_SECONDS_MIN:
            self.rate = _blend(self.rate, self.pending / elapsed, elapsed, self.half_life_s)
            self.pending = 0.0
            self.last_s = now_s
        self.pending += amount

    def value(self, now_s: float) -> float:
        """Return the rate per second as of this time; changes nothing."""
        elapsed = now_s - self.last_s
        if elapsed < SAMPLE_SECONDS_MIN:
            return self.rate
        return _blend(self.rate, self.pending / elapsed, elapsed, self.half_life_s)


def smoothed_level(level: float, sample: float, elapsed_s: float, half_life_s: float) -> float:
    """Return a level (not a rate) after a new sample of it: a constant sample is reached, whatever the interval."""
    return _blend(level, sample, max(0.0, elapsed_s), half_life_s)


def rate_text(rate: float) -> str:
    """Return bytes/s as people read them: what is written at all is never 0."""
    if rate < 1024:
        return f"{rate:.0f} B/s"
    return f"{rate / (1 << 20):.1f} MiB/s" if rate >= 1 << 20 else f"{rate / 1024:.0f} KiB/s"


def _blend(old: float, new: float, elapsed_s: float, half_life_s: float) -> float:
    weight = -math.expm1(-elapsed_s * math.log(2) / max(1.0, half_life_s))
    return weight * new + (1 - weight) * old
