"""A step at which somebody is killed: what is held for it, and who waits for that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.faults.http_proxy import Request
from tests.faults.stack import FaultStack
from tests.faults.traps import Moment, Trap

Matches = Callable[[int], Callable[[Any], bool]]
"""Given the number of a shard or repository, returns the test of what to hold."""


def report(shard: int) -> Callable[[Request], bool]:
    """Match the report of a success of the first merge of a shard."""
    return lambda request: request.is_about("POST", "/jobs/poll", b'"success"') and b"-S%d-L0" % shard in request.body


def commit(*parts: str) -> Matches:
    """Match the commit of a transaction in which all of these texts occur."""
    return lambda shard: lambda statement: statement.commits(*(part.format(shard=shard) for part in parts))


SWAPPED = commit("blocks/{shard}/", "-S{shard}-L0")
"""By the values: of statements that the server knows by now only these are sent."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """``match`` says what is held ``on`` the way to store, service or database; ``victims`` die."""

    name: str
    on: str
    match: Matches
    moment: Moment
    victims: tuple[str, ...] = ()
    call: int = 1

    def set_trap(self, stack: FaultStack, number: int) -> tuple[Trap[Any], AbstractContextManager[None]]:
        """Return the trap for one shard or repository, and what sets it for the length of a ``with``."""
        ways = {"store": stack.around.store, "service": stack.service, "database": stack.around.database}
        trap: Trap[Any] = Trap(matches=self.match(number), moment=self.moment, call=self.call)
        return trap, ways[self.on].traps.set(trap)
