"""Steps at which a process is killed: the exchange that is held, and the victims."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.faults.http_proxy import Request
from tests.faults.stack import FaultStack
from tests.faults.traps import Moment, Trap

Matches = Callable[[int], Callable[[Any], bool]]
"""Return the predicate of the held exchange, given the number of a shard or repository."""


def report(shard: int) -> Callable[[Request], bool]:
    """Match the success report of the first merge of a shard."""
    return lambda request: request.is_about("POST", "/jobs/poll", b'"success"') and b"-S%d-L0" % shard in request.body


def commit(*parts: str) -> Matches:
    """Match the commit of a transaction that contains all of these texts."""
    return lambda shard: lambda statement: statement.commits(*(part.format(shard=shard) for part in parts))


SWAPPED = commit("blocks/{shard}/", "-S{shard}-L0")
"""Matches by parameter values, because prepared statements are sent without their text."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """``match`` defines the exchange to hold ``on`` the way to store, service or database; ``victims`` are killed."""

    name: str
    on: str
    match: Matches
    moment: Moment
    victims: tuple[str, ...] = ()
    call: int = 1

    def set_trap(self, stack: FaultStack, number: int) -> tuple[Trap[Any], AbstractContextManager[None]]:
        """Return the trap for one shard or repository, and a context manager that sets it."""
        ways = {"store": stack.around.store, "service": stack.service, "database": stack.around.database}
        trap: Trap[Any] = Trap(matches=self.match(number), moment=self.moment, call=self.call)
        return trap, ways[self.on].traps.set(trap)
