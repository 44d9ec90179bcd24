"""An HTTP proxy for the web processes or the object store, with traps; it can also deliver every request twice."""

from __future__ import annotations

import http.client
import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.faults.traps import Fate, Moment, Traps

ANSWER_SECONDS_MAX = 60.0
NOT_PASSED_ON = {"connection", "transfer-encoding", "content-length", "server", "date"}


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]

    def is_about(self, method: str, path_part: str, body_part: bytes = b"") -> bool:
        """Return whether this is a request with that method, and with these parts in path and body."""
        return self.method == method and path_part in self.path and body_part in self.body


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's response; ``length`` is that of its header if there is no body."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes
    length: str


SLOW_DOWN = Answer(
    503,
    (("Content-Type", "application/xml"),),
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your request rate.'
    b"</Message><RequestId>1</RequestId></Error>",
    "0",
)
"""Response of S3 when it throttles; clients of the web processes check the status only."""
BAD_GATEWAY = Answer(502, (), b"", "0")


class HttpProxy(ThreadingHTTPServer):
    """Forward requests to ``targets`` in turn, skipping unreachable ones; ``traps`` apply on the way.

    While ``doubles`` is set, every POST is delivered to two targets at once and one of the responses is dropped.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *targets: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.traps: Traps[Request] = Traps()
        self.doubles = threading.Event()
        self._targets = tuple(urlsplit(target).netloc for target in targets)
        self._turns = itertools.count()

    def deliver(self, request: Request) -> Answer | None:
        """Forward a request and return the response, None if the connection closed before it."""
        turn = next(self._turns)
        if not (self.doubles.is_set() and request.method == "POST"):
            return self._deliver(request, turn)
        with ThreadPoolExecutor(2) as threads:
            answers = list(threads.map(lambda number: self._deliver(request, number), (turn, turn + 1)))
        return answers[turn // 2 % 2]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of clients that were killed during a request."""

    def _deliver(self, request: Request, turn: int) -> Answer | None:
        for number in range(len(self._targets)):
            target = self._targets[(turn + number) % len(self._targets)]
            connection = http.client.HTTPConnection(target, timeout=ANSWER_SECONDS_MAX)
            try:
                connection.connect()
            except OSError:
                continue
            return _ask(connection, request)
        return BAD_GATEWAY


def _ask(connection: http.client.HTTPConnection, request: Request) -> Answer | None:
    try:
        connection.request(request.method, request.path, request.body, request.headers)
        answer = connection.getresponse()
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in NOT_PASSED_ON]
        return Answer(answer.status, headers, answer.read(), answer.getheader("Content-Length") or "")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class _Handler(BaseHTTPRequestHandler):
    server: HttpProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(self.command, self.path, body, dict(self.headers.items()))
        self.server.traps.count()
        fate = self.server.traps.meet(request, Moment.BEFORE, self.client_address[1])
        answer = self.server.deliver(request) if fate is Fate.PASS else None
        if fate is Fate.PASS:
            fate = self.server.traps.meet(request, Moment.AFTER, self.client_address[1])
        if fate is Fate.REFUSE:
            self._send(SLOW_DOWN)
        elif answer is not None and fate is Fate.PASS:
            self._send(answer)
        else:
            self._break_off(answer if fate is Fate.TEAR else None)

    def _send(self, answer: Answer) -> None:
        self._send_head(answer)
        self.wfile.write(answer.body)

    def _send_head(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", (answer.length or "0") if self.command == "HEAD" else str(len(answer.body)))
        self.end_headers()

    def _break_off(self, torn: Answer | None) -> None:
        self.close_connection = True
        if torn:
            self._send_head(torn)
            self.wfile.write(torn.body[: len(torn.body) // 2])
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815 - names given by the standard library

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def http_proxy(*targets: str) -> Iterator[HttpProxy]:
    """Run a proxy for the servers at ``targets``."""
    proxy = HttpProxy(*targets)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
