"""A PostgreSQL proxy with traps that delay or drop a statement, or its response.

It parses as much of the protocol as it needs: traps get each message of a client, and the text of its transaction so
far. Django writes the parameters into the text. ``partitioned`` drops messages and closes no connection, ``slow``
delays each message.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.faults.traps import Fate, Moment, Trap, Traps

CHUNK_BYTES = 1 << 20
BEGIN, ENDS = b"BEGIN", (b"COMMIT", b"ROLLBACK")


@dataclass(frozen=True, slots=True)
class Statement:
    """The current message of a client, and all statements since its transaction began."""

    text: bytes
    transaction: bytes

    def commits(self, *parts: str) -> bool:
        """Return whether this commits a transaction that contains all of these texts."""
        return b"COMMIT" in self.text and all(part.encode() in self.transaction for part in parts)


class DatabaseProxy:
    """Listens on a loopback port and forwards to the server's Unix socket."""

    def __init__(self, socket_file: str) -> None:
        self._socket_file = socket_file
        self.traps: Traps[Statement] = Traps()
        self._link = _Link()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """Accept connections until ``close``."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            session = _Session(client, self._socket_file, self.traps, self._link)
            threading.Thread(target=session.run, daemon=True).start()

    def redirect(self, socket_file: str) -> None:
        """Forward new connections to another server."""
        self._socket_file = socket_file

    @contextmanager
    def partitioned(self) -> Iterator[None]:
        """Drop all messages in both directions.

        Connections stay open, and one that lost a message never works again.
        """
        self._link.drops.set()
        try:
            yield
        finally:
            self._link.drops.clear()

    @contextmanager
    def slow(self, seconds: float) -> Iterator[None]:
        """Delay each message of a client by ``seconds``."""
        self._link.delay_seconds = seconds
        try:
            yield
        finally:
            self._link.delay_seconds = 0.0

    def close(self) -> None:
        """Stop accepting connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class _Link:
    """State of the network between clients and server."""

    def __init__(self) -> None:
        self.drops = threading.Event()
        self.delay_seconds = 0.0


class _Session:
    """One connection, with a thread in each direction."""

    def __init__(self, client: socket.socket, socket_file: str, traps: Traps[Statement], link: _Link) -> None:
        self._client, self._socket_file, self._traps, self._link = client, socket_file, traps, link
        self._is_lost = False
        self._server = socket.socket(socket.AF_UNIX)
        self._port = int(client.getpeername()[1])
        self._answer_trap: Trap[Statement] | None = None

    def run(self) -> None:
        """Forward until one side closes."""
        try:
            self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._server.connect(self._socket_file)
            threading.Thread(target=self._answers, daemon=True).start()
            self._statements()
        except OSError:
            pass
        finally:
            self._end()

    def _statements(self) -> None:
        transaction, is_open = b"", False
        while data := self._client.recv(CHUNK_BYTES):
            if self._is_dropped():
                continue
            time.sleep(self._link.delay_seconds)
            is_open = is_open or BEGIN in data
            transaction = transaction + data if is_open else data
            statement = Statement(data, transaction)
            self._traps.count()
            if self._traps.meet(statement, Moment.BEFORE, self._port) is not Fate.PASS:
                return
            self._answer_trap = self._traps.find(statement, Moment.AFTER)
            if any(end in data for end in ENDS):
                transaction, is_open = b"", False
            self._server.sendall(data)

    def _answers(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(CHUNK_BYTES):
                if self._is_dropped():
                    continue
                trap, self._answer_trap = self._answer_trap, None
                if trap and trap.hold(self._port) is not Fate.PASS:
                    break
                self._client.sendall(data)
        self._end()

    def _is_dropped(self) -> bool:
        """Return whether a message is dropped now; then the connection is unusable, because bytes are missing."""
        self._is_lost = self._is_lost or self._link.drops.is_set()
        return self._is_lost

    def _end(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def database_proxy(socket_file: str) -> Iterator[DatabaseProxy]:
    """Run a proxy for the server that listens at ``socket_file``."""
    proxy = DatabaseProxy(socket_file)
    thread = threading.Thread(target=proxy.serve)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
