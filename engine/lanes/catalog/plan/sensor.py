"""Decide which branches to compact now, with a reason for every branch, and where a compaction runs.

Signals are persistent counters shared by all processes: tombstones and rows since the last compaction, sealed tokens
and their age, and listings that read far more rows than they returned.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

LOST_MAX = 5
"""The cooldown doubles with each conflict lost in a row, at most this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorPolicy:
    """Thresholds for compacting the branches of a repository; 0 disables a threshold. Times in seconds.

    A branch is *wanted* as soon as a signal reaches its threshold, and until all signals are below ``release`` times
    their thresholds. After a compaction has started it cools down for ``cooldown_s``, or ``cooldown_factor`` times its
    duration if that is longer, doubled for each conflict lost in a row. There is no cooldown from ``tokens_cap`` sealed
    tokens on.
    """

    tombstones: int = 1_000
    sealed_rows: int = 50_000
    sealed_tokens: int = 4
    sealed_age_s: float = 600.0
    wasteful_lists: int = 3
    release: float = 0.5
    cooldown_s: float = 300.0
    cooldown_factor: float = 10.0
    tokens_cap: int = 32
    running_max: int = 2
    bytes_per_hour: int = 64 << 30
    is_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchLoad:
    """The state of a branch that the sensor uses; times in seconds before now, by the database's clock.

    ``tombstones``, ``sealed_rows`` and ``wasteful_lists`` count since the last published compaction or commit.
    ``sealed_age_s`` is the age of the oldest sealed token, None while a commit that includes it is running.
    ``was_wanted`` is the previous decision's ``is_wanted``.
    """

    branch: str
    tombstones: int = 0
    sealed_rows: int = 0
    sealed_tokens: int = 0
    sealed_age_s: float | None = None
    wasteful_lists: int = 0
    bytes_to_rewrite: int = 0
    begun_s_ago: float | None = None
    took_s: float = 0.0
    lost_in_a_row: int = 0
    is_running: bool = False
    was_wanted: bool = False


class Held(enum.StrEnum):
    """Why a branch is not compacted now; ``FIRES`` if it is."""

    FIRES = "fires"
    QUIET = "no signal has reached its threshold"
    DISABLED = "compaction is disabled for the repository"
    RUNNING = "a compaction of the branch is waiting or running"
    COOLDOWN = "the branch is in its cooldown"
    BUDGET = "the repository's budget is exhausted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision for a branch. ``signals`` are (name, value, threshold) of all signals that reached it."""

    branch: str
    held: Held
    is_wanted: bool
    signals: tuple[tuple[str, float, float], ...] = ()
    severity: float = 0.0
    ready_in_s: float | None = None

    @property
    def fires(self) -> bool:
        return self.held is Held.FIRES

    @property
    def reason(self) -> str:
        """Return the decision as text."""
        signals = ", ".join(f"{name} {value:g} of {threshold:g}" for name, value, threshold in self.signals)
        if self.fires:
            return signals
        wait = f" (ready in {self.ready_in_s:.0f} s)" if self.ready_in_s else ""
        return f"{self.held.value}{wait}" + (f"; {signals}" if signals else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a repository's compactions use now: how many run, and the bytes they wrote in the last hour."""

    running: int = 0
    bytes_last_hour: int = 0


def decide(loads: Iterable[BranchLoad], policy: SensorPolicy, budget: Budget) -> list[Decision]:
    """Return a decision for each branch of a repository, by descending severity, then by name."""
    decisions_by_load = [(load, _decide_branch(load, policy)) for load in loads]
    decisions_by_load.sort(key=lambda each: (-each[1].severity, each[0].branch))
    running, written = budget.running, budget.bytes_last_hour
    decisions = []
    for load, decision in decisions_by_load:
        if decision.fires:
            # A branch larger than the whole budget may run while none of the budget is used.
            is_over = written > 0 and written + load.bytes_to_rewrite > policy.bytes_per_hour
            if running >= policy.running_max or is_over:
                decision = _held(decision, Held.BUDGET)
            else:
                running, written = running + 1, written + load.bytes_to_rewrite
        decisions.append(decision)
    return decisions


def _decide_branch(load: BranchLoad, policy: SensorPolicy) -> Decision:
    """Return the decision for one branch, ignoring the budget."""
    values = (
        ("tombstones", load.tombstones, policy.tombstones),
        ("sealed_rows", load.sealed_rows, policy.sealed_rows),
        ("sealed_tokens", load.sealed_tokens, policy.sealed_tokens),
        ("sealed_age_s", load.sealed_age_s or 0.0, policy.sealed_age_s),
        ("wasteful_lists", load.wasteful_lists, policy.wasteful_lists),
    )
    share = policy.release if load.was_wanted else 1.0
    signals = tuple((name, value, limit) for name, value, limit in values if limit and value >= share * limit)
    severity = max((value / limit for _, value, limit in signals), default=0.0)
    decision = Decision(
        branch=load.branch, held=Held.FIRES, is_wanted=bool(signals), signals=signals, severity=severity
    )
    if not policy.is_enabled:
        return _held(decision, Held.DISABLED)
    if load.is_running:
        return _held(decision, Held.RUNNING)
    if not signals:
        return _held(decision, Held.QUIET)
    cooldown = _cooldown_s(load, policy)
    return _held(decision, Held.COOLDOWN, cooldown) if cooldown > 0 else decision


def _cooldown_s(load: BranchLoad, policy: SensorPolicy) -> float:
    """Return the remaining cooldown in seconds."""
    if load.begun_s_ago is None or load.sealed_tokens >= policy.tokens_cap:
        return 0.0
    cooldown = max(policy.cooldown_s, policy.cooldown_factor * load.took_s) * float(
        1 << min(load.lost_in_a_row, LOST_MAX)
    )
    return cooldown - load.begun_s_ago


def _held(decision: Decision, held: Held, ready_in_s: float | None = None) -> Decision:
    return Decision(
        branch=decision.branch,
        held=held,
        is_wanted=decision.is_wanted,
        signals=decision.signals,
        severity=decision.severity,
        ready_in_s=ready_in_s,
    )


class BuildPath(enum.StrEnum):
    """Where a compaction or commit is built."""

    POINTER = "pointer"  # Nothing is staged: the snapshot or the head is the result.
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathLimits:
    """Staged rows and rewritten bytes up to which a build runs in one process (1.5 to 2 million rows a second)."""

    rows: int = 5_000_000
    size: int = 1 << 30


def build_path(*, rows: int, size: int, units: int, limits: PathLimits) -> BuildPath:
    """Return where to build a plan of so many staged rows, bytes to rewrite, and units. One unit never uses Spark."""
    if not rows and not units:
        return BuildPath.POINTER
    if units > 1 and (rows > limits.rows or size > limits.size):
        return BuildPath.SPARK
    return BuildPath.LOCAL
