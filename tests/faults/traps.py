"""Traps that proxies apply to exchanges: hold, drop, reject or tear them.

A trap applies to the ``call``-th exchange that it ``matches`` (from 1), and to ``times`` exchanges from there. One that
``holds`` keeps the exchange until the test has seen it (``wait``) and released it (``let_go``); any other acts at once.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

HOLD_SECONDS_MAX = 60.0
"""Maximum seconds to hold an exchange, longer than any test takes."""

Exchange = TypeVar("Exchange")


class Moment(enum.Enum):
    """Time at which a trap applies."""

    BEFORE = "before"  # The request was not sent.
    AFTER = "after"  # The request took effect, and its response is on the way.


class Fate(enum.Enum):
    """Result of the exchange."""

    PASS = "pass"  # Unchanged.
    CUT = "cut"  # The connection is closed without a response.
    REFUSE = "refuse"  # Response "try again later" (HTTP only).
    TEAR = "tear"  # Half of the response, then the connection is closed (HTTP only).


@dataclass(eq=False, kw_only=True)
class Trap(Generic[Exchange]):
    """See the module's docstring. ``client_port`` is the source port of the held exchange."""

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
        """Count an exchange if it matches, and return whether the trap applies to it."""
        with self._lock:
            if not self.matches(exchange):
                return False
            self._seen += 1
            is_struck = self.call <= self._seen < self.call + self.times
            self.struck += is_struck
            return is_struck

    def hold(self, client_port: int) -> Fate:
        """Wait until the test releases the exchange, if the trap ``holds``; return the fate. Called by the proxy."""
        self.client_port = client_port
        self._reached.set()
        if self.holds and not self._let_go.wait(HOLD_SECONDS_MAX):
            return Fate.PASS
        return self.fate

    def wait(self, seconds: float = HOLD_SECONDS_MAX) -> None:
        """Return when an exchange is in the trap."""
        assert self._reached.wait(seconds), "nothing went into the trap"

    def let_go(self, fate: Fate | None = None) -> None:
        """Release the held exchange."""
        self.fate = fate or self.fate
        self._let_go.set()


class Traps(Generic[Exchange]):
    """The traps of one proxy, and the number of exchanges so far."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._set: list[Trap[Exchange]] = []
        self._passed = 0

    @contextmanager
    def set(self, *traps: Trap[Exchange]) -> Iterator[None]:
        """Set traps within a ``with``; release what they still hold at its end."""
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
        """Return the trap that applies to the exchange."""
        with self._changed:
            armed = [trap for trap in self._set if trap.moment is moment]
        return next((trap for trap in armed if trap.strikes(exchange)), None)

    def meet(self, exchange: Exchange, moment: Moment, client_port: int) -> Fate:
        """Return the fate of an exchange after a trap that holds it has released it."""
        trap = self.find(exchange, moment)
        return trap.hold(client_port) if trap else Fate.PASS

    def count(self) -> None:
        """Count one more exchange."""
        with self._changed:
            self._passed += 1
            self._changed.notify_all()

    def wait_for_more(self, count: int, seconds: float = HOLD_SECONDS_MAX) -> None:
        """Wait for this many further exchanges."""
        with self._changed:
            target = self._passed + count
            assert self._changed.wait_for(lambda: self._passed >= target, seconds), "nothing comes any more"
