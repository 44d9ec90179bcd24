"""Command time in memory: the rule of the command log, with a wall clock that the simulated world moves."""

from __future__ import annotations

from typing import NamedTuple


class CommandTime(NamedTuple):
    """``is_held_back`` says that over a lease has passed since the last command (or that the clock went back)."""

    now_ms: int
    wall_ms: int
    is_held_back: bool


new = tuple.__new__


class CommandClock:
    """Advances per command by at least nothing and at most one lease."""

    def __init__(self, wall_ms: int) -> None:
        self.wall_ms = wall_ms
        self.head_time_ms = wall_ms
        self.head_wall_ms = wall_ms

    def read(self, lease_ms: int) -> CommandTime:
        """Return the time that a command would have now."""
        wall_ms = self.wall_ms
        passed = wall_ms - self.head_wall_ms
        if 0 <= passed < lease_ms:  # every event asks: the constructor of the class is one call more
            return new(CommandTime, (self.head_time_ms + passed, wall_ms, False))
        return CommandTime(self.head_time_ms + min(max(passed, 0), lease_ms), self.wall_ms, True)

    def move(self, time: CommandTime) -> None:
        """Make this the time of the last command."""
        self.head_time_ms, self.head_wall_ms = time.now_ms, time.wall_ms
