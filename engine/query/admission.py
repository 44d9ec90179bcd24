"""FIFO admission control of queries by memory, per process.

1. Callers queue. The first one reads its list of blocks and requests the memory that its query needs; when that is
   available, the next caller is first. No caller starves, and at most one list of blocks is not counted.
2. A caller that holds memory and needs more does not queue: only it can release memory.
3. If all holders wait for more memory, the first of them proceeds: the budget is exceeded by the need of one query, and
   there is no deadlock. A query that needs more than the whole budget runs alone in the same way.
4. The length of the queue and the waiting time are limited; other callers get QueryBusy.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from engine.query.errors import QueryAbandoned, QueryBusy, QueryTimedOut

CHECK_SECONDS = 0.25
"""Interval at which a waiting caller is checked for abandonment."""
RETRY_SECONDS = 5


class MemoryBudget:
    """The memory budget that the queries of a process share, with its waiting callers. Thread-safe."""

    def __init__(self, bytes_max: int, *, waiting_max: int, wait_seconds: float) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._waiting_max = waiting_max
        self._wait_seconds = wait_seconds
        self._changed = threading.Condition()
        self._line: list[Caller] = []
        self._for_room: list[Caller] = []

    @property
    def waiting(self) -> int:
        """Return the number of queued callers, including the first."""
        return len(self._line)

    @contextmanager
    def turn(self, caller: Caller) -> Iterator[None]:
        """Queue, and be first inside the context. Raises QueryBusy, or the error that ends the caller's call."""
        if caller.bytes_held:
            yield
            return
        with self._changed:
            if len(self._line) > self._waiting_max:
                raise QueryBusy(RETRY_SECONDS)
            self._line.append(caller)
        try:
            self._wait(caller, lambda: self._line[0] is caller)
            yield
        finally:
            with self._changed:
                self._line.remove(caller)
                self._changed.notify_all()

    def take(self, caller: Caller, more: int) -> None:
        """Wait for ``more`` bytes for a caller. Raises QueryBusy, or the error that ends the caller's call."""
        with self._changed:
            self._for_room.append(caller)
            self._for_room.sort(key=lambda each: not each.bytes_held)  # stable: the first of equals stays so
            try:
                self._wait(caller, lambda: self._has_room(caller, more))
                self.bytes_held += more
                caller.bytes_held += more
            finally:
                self._for_room.remove(caller)
                self._changed.notify_all()

    def give_back(self, caller: Caller, bytes_kept: int) -> None:
        """Release the memory of a caller down to ``bytes_kept``."""
        with self._changed:
            self.bytes_held -= caller.bytes_held - bytes_kept
            caller.bytes_held = bytes_kept
            self._changed.notify_all()

    def _wait(self, caller: Caller, may_go: Callable[[], bool]) -> None:
        until = time.monotonic() + self._wait_seconds
        with self._changed:
            while not may_go():
                caller.check()
                if time.monotonic() > until:
                    raise QueryBusy(RETRY_SECONDS)
                self._changed.wait(CHECK_SECONDS)

    def _has_room(self, caller: Caller, more: int) -> bool:
        if self._for_room[0] is not caller:
            return False
        held_by_waiting = sum(each.bytes_held for each in self._for_room)
        return self.bytes_held + more <= self.bytes_max or self.bytes_held == held_by_waiting


class Caller:
    """The caller of queries: its deadline, whether it still waits, and the memory that its answers hold.

    One per call. As a context manager it releases everything at the end, otherwise when it is garbage-collected.
    Thread-safe.
    """

    def __init__(self, memory: MemoryBudget, seconds: float, is_gone: Callable[[], bool] = lambda: False) -> None:
        self.seconds = seconds
        self.bytes_held = 0
        self._memory = memory
        self._until = time.monotonic() + seconds
        self._is_gone = is_gone
        self._has_ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the deadline."""
        return max(0.0, self._until - time.monotonic())

    def check(self) -> None:
        """Raise QueryTimedOut or QueryAbandoned if the caller no longer waits."""
        if self._has_ended or time.monotonic() > self._until:
            raise QueryTimedOut(self.seconds)
        if self._is_gone():
            raise QueryAbandoned("the caller no longer waits for the answer")

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Queue to read the list of blocks. Raises as ``hold``."""
        self.check()
        with self._memory.turn(self):
            yield

    def hold(self, bytes_needed: int) -> None:
        """Wait until at least ``bytes_needed`` are held. Raises QueryBusy, QueryTimedOut or QueryAbandoned."""
        self.check()
        if bytes_needed > self.bytes_held:
            self._memory.take(self, bytes_needed - self.bytes_held)

    def keep(self, bytes_kept: int) -> None:
        """Release memory down to ``bytes_kept``."""
        if bytes_kept < self.bytes_held:
            self._memory.give_back(self, bytes_kept)

    def close(self) -> None:
        """Release everything; work that still runs for this caller stops at its next step."""
        self._has_ended = True
        self.keep(0)

    def __del__(self) -> None:
        self.close()
