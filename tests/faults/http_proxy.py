"""An HTTP proxy before the web processes or the object store, with traps; it can also deliver every request twice."""

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
    """The request of a client."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]

    def is_about(self, method: str, path_part: str, body_part: bytes = b"") -> bool:
        """Tell whether this is a request with that method, and these parts in path and body."""
        return self.method == method and path_part in self.path and body_part in self.body


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a server; ``length`` is that of its header where there is no body."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes
    length: str


BAD_GATEWAY = Answer(502, (), b"", "0")


class HttpProxy(ThreadingHTTPServer):
    """Passes requests on to ``targets`` in turn; who cannot be reached is passed over. ``traps`` strike on the way.

    While ``doubles`` is set every POST is delivered to two targets at once and one of the answers is lost.
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
        """Pass a request on and return the answer, None if the connection broke before there was one."""
        turn = next(self._turns)
        if not (self.doubles.is_set() and request.method == "POST"):
            return self._deliver(request, turn)
        with ThreadPoolExecutor(2) as threads:
            answers = list(threads.map(lambda number: self._deliver(request, number), (turn, turn + 1)))
        return answers[turn // 2 % 2]

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that were killed while they waited are what this is for."""

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
            self._send(Answer(503, (), b"", "0"))
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
        """Say nothing."""


@contextmanager
def http_proxy(*targets: str) -> Iterator[HttpProxy]:
    """Run a proxy before the servers at ``targets``."""
    proxy = HttpProxy(*targets)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
