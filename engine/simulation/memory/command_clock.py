"""Command time in memory: the rule of the command log, with a wall clock that the simulation advances."""

from __future__ import annotations

from typing import NamedTuple


class CommandTime(NamedTuple):
    """Command time; ``is_held_back``: more than a lease has passed since the last command, or the clock went back."""

    now_ms: int
    wall_ms: int
    is_held_back: bool


new = tuple.__new__


class CommandClock:
    """A clock that advances by zero to one lease per command."""

    def __init__(self, wall_ms: int) -> None:
        self.wall_ms = wall_ms
        self.head_time_ms = wall_ms
        self.head_wall_ms = wall_ms

    def read(self, lease_ms: int) -> CommandTime:
        """Return the command time of a command at the present wall time."""
        wall_ms = self.wall_ms
        passed = wall_ms - self.head_wall_ms
        if 0 <= passed < lease_ms:  # hot path: the constructor of the class is one call more
            return new(CommandTime, (self.head_time_ms + passed, wall_ms, False))
        return CommandTime(self.head_time_ms + min(max(passed, 0), lease_ms), self.wall_ms, True)

    def move(self, time: CommandTime) -> None:
        """Set the time of the last command."""
        self.head_time_ms, self.head_wall_ms = time.now_ms, time.wall_ms
