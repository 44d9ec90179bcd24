"""Traps that proxies set for what passes through them: hold it, lose it, refuse it, tear it.

A trap strikes the ``call``-th exchange that it ``matches`` (from 1), and so many after it as ``times`` says. One that
``holds`` keeps the exchange until the test has seen it (``wait``) and decided (``let_go``); any other acts at once.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

HOLD_SECONDS_MAX = 60.0
"""What is held longer than any test takes is let go all the same, so that nothing waits for ever."""

Exchange = TypeVar("Exchange")


class Moment(enum.Enum):
    """When a trap strikes."""

    BEFORE = "before"  # the other side has not heard of it
    AFTER = "after"  # the other side has done it, and its answer is on the way


class Fate(enum.Enum):
    """What becomes of it."""

    PASS = "pass"  # nothing
    CUT = "cut"  # the connection is closed without an answer
    REFUSE = "refuse"  # "try again later" (HTTP only)
    TEAR = "tear"  # half of the answer, then the connection is closed (HTTP only)


@dataclass(eq=False, kw_only=True)
class Trap(Generic[Exchange]):
    """See the module's docstring. ``client_port`` is where the struck exchange came from."""

    matches: Callable[[Exchange], bool]
    moment: Moment
    call: int = 1
    times: int = 1
    fate: Fate = Fate.CUT
    holds: bool = True
    client_port: int = 0
    struck: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._seen = 0
        self._reached = threading.Event()
        self._let_go = threading.Event()

    def strikes(self, exchange: Exchange) -> bool:
        """Count an exchange if it matches, and tell whether it is one of those to strike."""
        with self._lock:
            if not self.matches(exchange):
                return False
            self._seen += 1
            is_struck = self.call <= self._seen < self.call + self.times
            self.struck += is_struck
            return is_struck

    def hold(self, client_port: int) -> Fate:
        """Called by the proxy: wait for the test's decision, if it wants to decide; return the fate."""
        self.client_port = client_port
        self._reached.set()
        if self.holds and not self._let_go.wait(HOLD_SECONDS_MAX):
            return Fate.PASS
        return self.fate

    def wait(self, seconds: float = HOLD_SECONDS_MAX) -> None:
        """Return when something is in the trap."""
        assert self._reached.wait(seconds), "nothing went into the trap"

    def let_go(self, fate: Fate | None = None) -> None:
        """Let what is held go to its fate."""
        self.fate = fate or self.fate
        self._let_go.set()


class Traps(Generic[Exchange]):
    """The traps of one proxy, and how many exchanges it has seen."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._set: list[Trap[Exchange]] = []
        self._passed = 0

    @contextmanager
    def set(self, *traps: Trap[Exchange]) -> Iterator[None]:
        """Set traps for the length of a ``with``; what they still hold at its end is released."""
        with self._changed:
            self._set += traps
        try:
            yield
        finally:
            with self._changed:
                self._set = [trap for trap in self._set if trap not in traps]
            for trap in traps:
                trap.let_go()

    def find(self, exchange: Exchange, moment: Moment) -> Trap[Exchange] | None:
        """Return the trap that strikes now."""
        with self._changed:
            armed = [trap for trap in self._set if trap.moment is moment]
        return next((trap for trap in armed if trap.strikes(exchange)), None)

    def meet(self, exchange: Exchange, moment: Moment, client_port: int) -> Fate:
        """Return the fate of an exchange after the trap that holds it has released it."""
        trap = self.find(exchange, moment)
        return trap.hold(client_port) if trap else Fate.PASS

    def count(self) -> None:
        """Note that one more exchange has come."""
        with self._changed:
            self._passed += 1
            self._changed.notify_all()

    def wait_for_more(self, count: int, seconds: float = HOLD_SECONDS_MAX) -> None:
        """Wait until so many further exchanges have come."""
        with self._changed:
            target = self._passed + count
            assert self._changed.wait_for(lambda: self._passed >= target, seconds), "nothing comes any more"
