"""Throughput of a part of the schedule, and the estimated time until its backlog is cleared. Pure arithmetic.

Rates are per second over the observed time only, which is shorter than the window after a start. Without observations
the estimate is unknown.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

ASSUMED_SECONDS_PER_MIB = 0.5
"""Cost of one MiB of sources before a merge was measured: high, so that the fleet is not sized too small."""
MIB = 1 << 20


class Outlook(enum.StrEnum):
    """Trend of a backlog at the present rates."""

    CLEAR = "clear"  # nothing is due
    SHRINKS = "shrinks"  # it is cleared after some time
    NEVER = "never"  # the arrival rate is at least the drain rate
    UNKNOWN = "unknown"  # nothing was observed yet
    PAUSED = "paused"  # all due blocks are paused by an operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Blocks that arrived and were drained during ``seconds``: merged in ``run_ms`` of runs, or dropped unmerged."""

    seconds: float
    arrived_blocks: int = 0
    arrived_bytes: int = 0
    drained_blocks: int = 0
    drained_bytes: int = 0
    dropped_blocks: int = 0
    dropped_bytes: int = 0
    completed_jobs: int = 0
    run_ms: int = 0

    def per_second(self, amount: int) -> float:
        """Return an amount of this flow per second; 0 if no time was observed."""
        return amount / self.seconds if self.seconds > 0 else 0.0

    def seconds_per_byte(self) -> float:
        """Return the seconds of a job slot per source byte: measured, or assumed before the first merge."""
        merged_bytes = self.drained_bytes - self.dropped_bytes
        if merged_bytes > 0 and self.run_ms > 0:
            return self.run_ms / 1000 / merged_bytes
        return ASSUMED_SECONDS_PER_MIB / MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing:
    """Estimated time until a backlog is cleared; ``seconds`` is None unless it shrinks or is clear.

    ``paused_blocks`` are excluded from the estimate because the end of a pause is unknown.
    """

    outlook: Outlook
    seconds: float | None
    paused_blocks: int = 0

    def words(self) -> str:
        """Return the estimate as text."""
        if self.paused_blocks and self.outlook is not Outlook.PAUSED:
            rest = Clearing(outlook=self.outlook, seconds=self.seconds).words()
            return f"{rest}, without {count_text(self.paused_blocks, 'paused block')}"
        if self.outlook is Outlook.SHRINKS and self.seconds is not None:
            return f"in {seconds_text(self.seconds)}"
        return {
            Outlook.CLEAR: "nothing due",
            Outlook.NEVER: "never at this rate",
            Outlook.UNKNOWN: "not counted yet",
            Outlook.PAUSED: "paused",
        }[self.outlook]


def clearing(due_blocks: int, flow: Flow, *, paused_blocks: int = 0) -> Clearing:
    """Return the estimated time until the due blocks are merged at the rates of ``flow``.

    ``paused_blocks`` is the number of due blocks that an operator's pause covers; they are excluded.
    """
    left = due_blocks - paused_blocks
    if left <= 0:
        outlook = Outlook.PAUSED if paused_blocks else Outlook.CLEAR
        return Clearing(outlook=outlook, seconds=None if paused_blocks else 0.0, paused_blocks=paused_blocks)
    if flow.seconds <= 0:
        return Clearing(outlook=Outlook.UNKNOWN, seconds=None, paused_blocks=paused_blocks)
    surplus = flow.per_second(flow.drained_blocks) - flow.per_second(flow.arrived_blocks)
    if surplus <= 0:
        return Clearing(outlook=Outlook.NEVER, seconds=None, paused_blocks=paused_blocks)
    return Clearing(outlook=Outlook.SHRINKS, seconds=left / surplus, paused_blocks=paused_blocks)


def work_seconds(backlog_bytes: int, flow: Flow) -> float:
    """Return the seconds that one job slot needs for a backlog; a fleet is sized by it."""
    return backlog_bytes * flow.seconds_per_byte()


def seconds_text(seconds: float) -> str:
    """Return a duration in its two largest units, as in ``2 h 5 min``."""
    rest, parts = max(0, round(seconds)), []
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number} {name}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def first_names(names: Sequence[str], most: int = 20) -> str:
    """Return names as text, at most ``most`` of them, as in ``a; b and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 block``, ``2 blocks``, ``2 branches``, ``2 repositories``."""
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{'es' if noun.endswith('ch') else 's'}"
    return f"{count} {noun}"
