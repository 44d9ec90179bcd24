"""A proxy before PostgreSQL, with traps: it holds or loses a statement, or the answer to it.

It follows the protocol as far as it must: the traps see each message of a client, and the text of its transaction so
far. Django writes the parameters into the text.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.faults.traps import Fate, Moment, Trap, Traps

CHUNK_BYTES = 1 << 20
BEGIN, ENDS = b"BEGIN", (b"COMMIT", b"ROLLBACK")


@dataclass(frozen=True, slots=True)
class Statement:
    """What a client sends now, and everything since its transaction began."""

    text: bytes
    transaction: bytes

    def commits(self, *parts: str) -> bool:
        """Tell whether this commits a transaction in which all of these texts occur."""
        return b"COMMIT" in self.text and all(part.encode() in self.transaction for part in parts)


class DatabaseProxy:
    """Listens on a port of the loopback interface and passes everything on to the server's socket file."""

    def __init__(self, socket_file: str) -> None:
        self._socket_file = socket_file
        self.traps: Traps[Statement] = Traps()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """Take connections until ``close``."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=_Session(client, self._socket_file, self.traps).run, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class _Session:
    """One connection: a thread in each direction."""

    def __init__(self, client: socket.socket, socket_file: str, traps: Traps[Statement]) -> None:
        self._client, self._socket_file, self._traps = client, socket_file, traps
        self._server = socket.socket(socket.AF_UNIX)
        self._port = int(client.getpeername()[1])
        self._answer_trap: Trap[Statement] | None = None

    def run(self) -> None:
        """Pass on until one side ends."""
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
                trap, self._answer_trap = self._answer_trap, None
                if trap and trap.hold(self._port) is not Fate.PASS:
                    break
                self._client.sendall(data)
        self._end()

    def _end(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def database_proxy(socket_file: str) -> Iterator[DatabaseProxy]:
    """Run a proxy before the server that listens at ``socket_file``."""
    proxy = DatabaseProxy(socket_file)
    thread = threading.Thread(target=proxy.serve)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
