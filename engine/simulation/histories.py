"""Run many histories and minimise failures: the fewest faults, workers and writers that still fail.

A history is determined by its seed and the reductions of its scenario, so one command line replays it.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from engine.simulation.checks.audit import InvariantBroken
from engine.simulation.checks.quiescence import dump
from engine.simulation.checks.twin_invariants import invariant_28_clock
from engine.simulation.scenario import Fault, Sabotage, Scenario, random_scenario
from engine.simulation.simulate import Outcome, Simulation, simulate

SHRINKS_MAX = 60
"""Maximum histories run to minimise a failure."""
SECONDS_MIN = 10.0
CLOCK_EVERY = 20
"""One in this many histories is run again with other worker clocks (invariant 28)."""
CLOCK_ERROR_MS = 3_600_000
CHUNK = 8
"""Histories per task of a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryName:
    """The identity of a history: a seed, a sabotage, and the reductions of its scenario."""

    seed: int
    sabotage: Sabotage = Sabotage.NONE
    without: frozenset[Fault] = frozenset()
    workers: int | None = None
    slots: int | None = None
    seconds: float | None = None

    def scenario(self) -> Scenario:
        """Return the scenario of the seed with the reductions applied."""
        scenario = random_scenario(self.seed)
        fleet = replace(
            scenario.fleet,
            workers=self.workers or scenario.fleet.workers,
            slots=self.slots or scenario.fleet.slots,
        )
        return replace(
            scenario,
            fleet=fleet,
            duration_s=self.seconds or scenario.duration_s,
            faults=scenario.faults - self.without,
            sabotage=self.sabotage,
        )

    def run(self) -> Outcome:
        """Run the history; some seeds twice. Raises InvariantBroken."""
        if self.seed % CLOCK_EVERY == 0:
            compare_clocks(self)
        return simulate(self.scenario(), self.seed)

    def command_line(self) -> str:
        """Return the command line that replays the history."""
        words = ["manage.py simulate", f"--seed {self.seed}", "--profile faults"]
        if self.sabotage is not Sabotage.NONE:
            words.append(f"--sabotage {self.sabotage}")
        if self.without:
            words.append(f"--without {','.join(sorted(self.without))}")
        for option in ("workers", "slots", "seconds"):
            if (value := getattr(self, option)) is not None:
                words.append(f"--{option} {value:g}")
        return " ".join(words)


Ended = tuple[HistoryName, Outcome | InvariantBroken]
"""A history and its outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A minimised history that breaks an invariant."""

    name: HistoryName
    number: int
    message: str
    faults: frozenset[Fault]


@dataclass(slots=True)
class Report:
    """The summary of many histories."""

    histories: int = 0
    events: int = 0
    commands: int = 0
    segments: int = 0
    runs: int = 0
    stale: int = 0
    parked: int = 0
    consolidations: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    orders: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a history without a failure."""
        tally = outcome.tally
        self.histories += 1
        self.events += tally.events
        self.commands += outcome.commands
        self.segments += tally.segments
        self.runs += tally.runs
        self.stale += tally.stale
        self.parked += outcome.parked_jobs
        self.consolidations += outcome.consolidations
        self.faults.update(tally.faults)
        self.orders.update(outcome.orders)

    def to_json(self) -> dict[str, Any]:
        """Return the counts, and the command line that replays each failure."""
        numbers = ("histories", "events", "commands", "segments", "runs", "stale", "parked", "consolidations")
        return {name: getattr(self, name) for name in numbers} | {
            "faults": dict(sorted(self.faults.items())),
            "commands_by_kind": dict(sorted(self.orders.items())),
            "failures": [
                {"invariant": failure.number, "message": failure.message, "replay": failure.name.command_line()}
                for failure in self.failures
            ],
        }


def run_histories(
    names: Iterable[HistoryName],
    *,
    failures_max: int = 1,
    progress: Callable[[Report], None] | None = None,
    processes: int = 1,
) -> Report:
    """Run histories up to a number of failures and minimise each. The report does not depend on ``processes``."""
    report = Report()
    with _pool(processes) as run_all:
        for name, outcome in run_all(names):
            if isinstance(outcome, InvariantBroken):
                report.histories += 1
                report.failures.append(shrink(name, outcome))
                if len(report.failures) >= failures_max:
                    break
            else:
                report.add(outcome)
            if progress is not None:
                progress(report)
    return report


@contextmanager
def _pool(processes: int) -> Iterator[Callable[[Iterable[HistoryName]], Iterable[Ended]]]:
    """Yield a function that runs histories in ``processes`` processes and keeps their order."""
    if processes == 1:
        yield lambda names: map(_ended, names)
        return
    # Spawned, not forked: the caller may have threads.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield lambda names: pool.imap(_ended, names, chunksize=CHUNK)


def _ended(name: HistoryName) -> Ended:
    try:
        return name, name.run()
    except InvariantBroken as error:
        return name, error


def compare_clocks(name: HistoryName) -> None:
    """Run a history with correct and with wrong worker clocks. Raises InvariantBroken if the rows differ."""
    scenario = name.scenario()
    ends = []
    for error_ms in (0, CLOCK_ERROR_MS):
        simulation = Simulation(replace(scenario, fleet=replace(scenario.fleet, clock_error_ms=error_ms)), name.seed)
        simulation.run()
        ends.append(dump(simulation.world.schedule))
    invariant_28_clock(*ends)


def shrink(name: HistoryName, error: InvariantBroken) -> Failure:
    """Return the smallest history found that breaks the same invariant."""
    budget, is_smaller = SHRINKS_MAX, True
    while is_smaller and budget > 0:
        is_smaller = False
        for smaller in _smaller(name):
            budget -= 1
            found = _failure(smaller)
            if found is not None and found.number == error.number:
                name, error, is_smaller = smaller, found, True
                break
            if budget == 0:
                break
    return Failure(name=name, number=error.number, message=str(error), faults=name.scenario().faults)


def _failure(name: HistoryName) -> InvariantBroken | None:
    try:
        name.run()
    except InvariantBroken as error:
        return error
    return None


def _smaller(name: HistoryName) -> Iterator[HistoryName]:
    """Yield reduced histories, the largest reductions first."""
    scenario = name.scenario()
    if scenario.duration_s >= 2 * SECONDS_MIN:
        yield replace(name, seconds=scenario.duration_s / 2)
    for workers in {1, scenario.fleet.workers - 1} - {0, scenario.fleet.workers}:
        yield replace(name, workers=workers)
    if scenario.fleet.slots > 1:
        yield replace(name, slots=1)
    for fault in sorted(scenario.faults):
        yield replace(name, without=name.without | {fault})
