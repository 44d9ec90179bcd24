"""Compute the number of workers for a load: measure its demand without waiting, then simulate a fleet of that size."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from engine.simulation.scenario import Fleet, Scenario, Workload
from engine.simulation.simulate import Outcome, Sample, simulate

BUSY_TARGET = 0.8
"""Target utilisation of a fleet; the rest is for bursts, crashes and restarts."""
TABLE_ROWS = 13
SAMPLES = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The result. ``demand_slots`` is the average number of busy slots; the samples are of a fleet of ``workers``."""

    demand_slots: float
    workers_needed: int
    workers: int
    utilisation: float
    jobs: int
    segments: int
    samples: tuple[Sample, ...]

    def is_growing(self) -> bool:
        """Return whether waiting times grow in the second half."""
        half = self.samples[len(self.samples) // 2 :]
        if len(half) < 4:
            return False
        first, last = (_mean_wait(part) for part in (half[: len(half) // 2], half[len(half) // 2 :]))
        return last > 60 and last > 1.2 * first

    def trend(self) -> str:
        """Return the trend of the backlog as text."""
        return "grows without end" if self.is_growing() else "stays bounded"

    def table(self) -> tuple[Sample, ...]:
        """Return a few samples, spread over the whole time, for display."""
        step = max(1, (len(self.samples) - 1) // (TABLE_ROWS - 1))
        return self.samples[::step]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON; the samples are parallel lists."""
        return {
            "demand_slots": round(self.demand_slots, 2),
            "workers_needed": self.workers_needed,
            "workers": self.workers,
            "utilisation": round(self.utilisation, 4),
            "is_growing": self.is_growing(),
            "jobs": self.jobs,
            "segments": self.segments,
            "curve": {
                "at_s": [sample.at_s for sample in self.samples],
                "queued_blocks": [sample.queued_blocks for sample in self.samples],
                "live_jobs": [sample.live_jobs for sample in self.samples],
                "busy_slots": [sample.busy_slots for sample in self.samples],
                "wait_s": [sample.wait_s for sample in self.samples],
            },
        }


def size_fleet(load: Workload, prices: Fleet, *, hours: float, seed: int) -> Sizing:
    """Return the number of workers with ``prices`` for the load; simulate that many, or ``prices.workers`` if set."""
    demand = _demand(load, prices, hours=hours, seed=seed)
    needed = max(1, math.ceil(demand / BUSY_TARGET / prices.slots))
    fleet = replace(prices, workers=prices.workers or needed)
    outcome = _simulate(load, fleet, hours=hours, seed=seed)
    return Sizing(
        demand_slots=demand,
        workers_needed=needed,
        workers=fleet.workers,
        utilisation=outcome.utilisation,
        jobs=outcome.tally.runs,
        segments=outcome.tally.segments,
        samples=outcome.samples,
    )


def _demand(load: Workload, prices: Fleet, *, hours: float, seed: int) -> float:
    """Return the average number of busy slots if work never waits for one."""
    outcome = _simulate(load, replace(prices, workers=1, slots=1_000_000), hours=hours, seed=seed)
    return outcome.tally.busy_ms / (hours * 3_600_000)


def _simulate(load: Workload, fleet: Fleet, *, hours: float, seed: int) -> Outcome:
    seconds = hours * 3600
    return simulate(
        Scenario(
            workload=load,
            fleet=fleet,
            duration_s=seconds,
            keeps_history=False,
            drains=False,
            sample_s=seconds / SAMPLES,
        ),
        seed,
    )


def _mean_wait(samples: tuple[Sample, ...]) -> float:
    return sum(sample.wait_s for sample in samples) / len(samples)
