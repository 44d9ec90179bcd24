"""How fast a part of the schedule moves, and when its backlog will be gone. Pure arithmetic on what was counted.

A rate is per second over the time that was really watched, so that a service that counts since a minute does not divide
by an hour. Nothing here guesses: where nothing was counted yet the answer is that it is unknown.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

ASSUMED_SECONDS_PER_MIB = 0.5
"""Cost of a mebibyte of sources before the first merge was measured: slow on purpose, so that nobody starts too few."""
MIB = 1 << 20


class Outlook(enum.StrEnum):
    """What becomes of a backlog at the present rates."""

    CLEAR = "clear"  # nothing is due
    SHRINKS = "shrinks"  # it will be gone after some time
    NEVER = "never"  # what arrives is at least as much as what is done
    UNKNOWN = "unknown"  # nothing was counted yet
    PAUSED = "paused"  # an operator holds all that is due


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What arrived and what was drained during ``seconds``: merged in ``run_ms`` of runs, or dropped unmerged."""

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
        """Return an amount of this flow as a rate; 0 while no time was watched."""
        return amount / self.seconds if self.seconds > 0 else 0.0

    def seconds_per_byte(self) -> float:
        """Return what one byte of sources costs one job slot: measured, or assumed before the first merge."""
        merged_bytes = self.drained_bytes - self.dropped_bytes
        if merged_bytes > 0 and self.run_ms > 0:
            return self.run_ms / 1000 / merged_bytes
        return ASSUMED_SECONDS_PER_MIB / MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing:
    """When a backlog is gone; ``seconds`` is None unless it shrinks or is clear. ``paused_blocks`` are left out of it:
    nobody knows when their pause ends."""

    outlook: Outlook
    seconds: float | None
    paused_blocks: int = 0

    def words(self) -> str:
        """Return it as an operator reads it."""
        if self.paused_blocks and self.outlook is not Outlook.PAUSED:
            rest = Clearing(outlook=self.outlook, seconds=self.seconds).words()
            return f"{rest}, without {count_words(self.paused_blocks, 'paused block')}"
        if self.outlook is Outlook.SHRINKS and self.seconds is not None:
            return f"in {seconds_text(self.seconds)}"
        return {
            Outlook.CLEAR: "nothing due",
            Outlook.NEVER: "never at this rate",
            Outlook.UNKNOWN: "not counted yet",
            Outlook.PAUSED: "paused",
        }[self.outlook]


def clearing(due_blocks: int, flow: Flow, *, paused_blocks: int = 0) -> Clearing:
    """Return when blocks that could be merged now are gone, if blocks go on to arrive and drain as in ``flow``.

    ``paused_blocks`` of the due ones are held by an operator's pause: no rate of the past says when they are merged.
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
    """Return how long one job slot would be busy with a backlog: what a fleet is sized by."""
    return backlog_bytes * flow.seconds_per_byte()


def seconds_text(seconds: float) -> str:
    """Return a duration in its two largest units: ``2 h 5 min``."""
    rest, parts = max(0, round(seconds)), []
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number} {name}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def first_names(names: Sequence[str], most: int = 20) -> str:
    """Return names as a list in words, the first of many: ``a; b and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more


def count_words(count: int, noun: str) -> str:
    """Return a number of things: ``1 block``, ``2 blocks``, ``2 branches``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('ch') else 's'}"
