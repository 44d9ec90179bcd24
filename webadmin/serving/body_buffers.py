"""Bodies of requests on their way from the event loop to threads: buffered whole, or streamed."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

BUFFERED_BYTES_TOTAL = 256 << 20
"""Limit of all bodies that a process buffers or has buffered for requests without an answer yet."""


class ClientLeft(ConnectionError):
    """The client closed its connection before the body was complete, or was too slow and was disconnected."""


class Connection(Protocol):
    """The connection of a body."""

    @property
    def is_closed(self) -> bool:
        """Whether no more data arrives."""

    def give_up(self, status: int) -> None:
        """Reject the request that is being read with this status."""


class BodyBuffers:
    """Buffers bodies up to a total. When it is exceeded, the oldest unfinished body is rejected as the slowest."""

    def __init__(self, limit: int = BUFFERED_BYTES_TOTAL) -> None:
        self._limit = limit
        self._total = 0
        self._gathering: dict[Connection, None] = {}

    async def gather(self, connection: Connection, receive: Receive) -> bytes:
        """Return a whole body, to be released with ``release``. Raises ClientLeft if it does not arrive."""
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
        """Subtract a buffered body of ``size`` bytes that was freed."""
        self._total -= size

    def _make_room(self) -> None:
        if self._total > self._limit and self._gathering:
            slowest = next(iter(self._gathering))
            del self._gathering[slowest]
            slowest.give_up(503)


class StreamedBody(io.RawIOBase):
    """A body that a thread reads while it arrives. Raises ClientLeft if the connection is lost."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Receive) -> None:
        super().__init__()
        self._loop = loop
        self._receive = receive
        self._rest = memoryview(b"")
        self._is_over = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the available bytes; wait for the first."""
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
