"""Bodies of requests on their way from the event loop to threads: gathered whole, or streamed."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

BUFFERED_BYTES_TOTAL = 256 << 20
"""Of all bodies that a process gathers or has gathered and not yet answered."""


class ClientLeft(ConnectionError):
    """The client closed its connection before it had sent everything, or was too slow and given up."""


class Connection(Protocol):
    """What a body comes from."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing comes any more."""

    def give_up(self, status: int) -> None:
        """Refuse what is being read."""


class BodyBuffers:
    """Gathers bodies within a total. When it is exceeded, the oldest unfinished body is the slowest and is given up."""

    def __init__(self, limit: int = BUFFERED_BYTES_TOTAL) -> None:
        self._limit = limit
        self._total = 0
        self._gathering: dict[Connection, None] = {}

    async def gather(self, connection: Connection, receive: Receive) -> bytes:
        """Return a whole body, to be given back with ``release``. ClientLeft if it does not come."""
        parts: list[bytes] = []
        size = 0
        self._gathering[connection] = None
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeft("the client left before its request was whole")
                part = message.get("body", b"")
                parts.append(part)
                size += len(part)
                self._total += len(part)
                self._make_room()
                if not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        except BaseException:
            self._total -= size
            raise
        finally:
            self._gathering.pop(connection, None)

    def release(self, size: int) -> None:
        """Take note that a gathered body of ``size`` bytes is gone."""
        self._total -= size

    def _make_room(self) -> None:
        if self._total > self._limit and self._gathering:
            slowest = next(iter(self._gathering))
            del self._gathering[slowest]
            slowest.give_up(503)


class StreamedBody(io.RawIOBase):
    """A body that a thread reads while it comes; ClientLeft where it breaks off."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Receive) -> None:
        super().__init__()
        self._loop = loop
        self._receive = receive
        self._rest = memoryview(b"")
        self._is_over = False

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as bytes are there; wait for the first."""
        while not self._rest and not self._is_over:
            message = asyncio.run_coroutine_threadsafe(_await(self._receive), self._loop).result()
            if message["type"] == "http.disconnect":
                raise ClientLeft("the client left before its request was whole")
            self._rest = memoryview(message.get("body", b""))
            self._is_over = not message.get("more_body", False)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


async def _await(receive: Receive) -> Message:
    return await receive()
