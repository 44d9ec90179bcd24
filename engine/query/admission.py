"""Which questions may work at once: a process has so many bytes for them, and who finds no room waits his turn.

1. Who asks stands in line. At his turn he looks what there is to read, and says how much memory that needs; when there
   is room the next one has his turn. So nobody is overtaken for ever, and one list of blocks at most is not counted.
2. Who holds something already and needs more does not stand in line: he is the one who can give room back.
3. If all who hold something wait for more, the first of them goes on: the sum is then over the budget by what one
   question needs, and nobody waits for ever. So does a question that needs more than there is: it works alone.
4. Only so many stand in line, and only so long; the others are told to come again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from engine.query.errors import QueryAbandoned, QueryBusy, QueryTimedOut

LOOK_SECONDS = 0.25
"""So often somebody who waits is asked whether he still wants to."""
RETRY_SECONDS = 5


class MemoryBudget:
    """Bytes that the questions of a process share, and who waits for some. Safe to use from several threads."""

    def __init__(self, bytes_max: int, *, waiting_max: int, wait_seconds: float) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._waiting_max = waiting_max
        self._wait_seconds = wait_seconds
        self._changed = threading.Condition()
        self._line: list[Asker] = []
        self._for_room: list[Asker] = []

    @property
    def waiting(self) -> int:
        """How many stand in line, the one whose turn it is among them."""
        return len(self._line)

    @contextmanager
    def turn(self, asker: Asker) -> Iterator[None]:
        """Stand in line, have the turn inside. Raises QueryBusy, or what ends the asker's call."""
        if asker.bytes_held:
            yield
            return
        with self._changed:
            if len(self._line) > self._waiting_max:
                raise QueryBusy(RETRY_SECONDS)
            self._line.append(asker)
        try:
            self._wait(asker, lambda: self._line[0] is asker)
            yield
        finally:
            with self._changed:
                self._line.remove(asker)
                self._changed.notify_all()

    def take(self, asker: Asker, more: int) -> None:
        """Give an asker so many bytes more, when there is room. Raises QueryBusy, or what ends his call."""
        with self._changed:
            self._for_room.append(asker)
            self._for_room.sort(key=lambda each: not each.bytes_held)  # stable: the first of equals stays so
            try:
                self._wait(asker, lambda: self._has_room(asker, more))
                self.bytes_held += more
                asker.bytes_held += more
            finally:
                self._for_room.remove(asker)
                self._changed.notify_all()

    def give_back(self, asker: Asker, bytes_kept: int) -> None:
        """Take back what an asker does not need any more."""
        with self._changed:
            self.bytes_held -= asker.bytes_held - bytes_kept
            asker.bytes_held = bytes_kept
            self._changed.notify_all()

    def _wait(self, asker: Asker, may_go: Callable[[], bool]) -> None:
        until = time.monotonic() + self._wait_seconds
        with self._changed:
            while not may_go():
                asker.check()
                if time.monotonic() > until:
                    raise QueryBusy(RETRY_SECONDS)
                self._changed.wait(LOOK_SECONDS)

    def _has_room(self, asker: Asker, more: int) -> bool:
        if self._for_room[0] is not asker:
            return False
        held_by_waiting = sum(each.bytes_held for each in self._for_room)
        return self.bytes_held + more <= self.bytes_max or self.bytes_held == held_by_waiting


class Asker:
    """Who waits for answers: until when, whether still, and what memory his answers have.

    One for all questions of a call. As a context manager it gives everything back at the end; if nobody does so, when
    it is forgotten. Safe to use from several threads.
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
        """How long he still waits."""
        return max(0.0, self._until - time.monotonic())

    def check(self) -> None:
        """Raise QueryTimedOut or QueryAbandoned if nobody waits any more."""
        if self._has_ended or time.monotonic() > self._until:
            raise QueryTimedOut(self.seconds)
        if self._is_gone():
            raise QueryAbandoned("nobody waits for the answer any more")

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait in line for the turn to look what there is to read. Raises as ``hold``."""
        self.check()
        with self._memory.turn(self):
            yield

    def hold(self, bytes_needed: int) -> None:
        """Hold at least so much from now on, when there is room. Raises QueryBusy, QueryTimedOut, QueryAbandoned."""
        self.check()
        if bytes_needed > self.bytes_held:
            self._memory.take(self, bytes_needed - self.bytes_held)

    def keep(self, bytes_kept: int) -> None:
        """Hold no more than so much from now on."""
        if bytes_kept < self.bytes_held:
            self._memory.give_back(self, bytes_kept)

    def close(self) -> None:
        """Give everything back; what still works for this asker stops at its next step."""
        self._has_ended = True
        self.keep(0)

    def __del__(self) -> None:
        self.close()
