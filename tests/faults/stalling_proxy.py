"""An S3 proxy that delays the requests for chosen keys.

``stalled`` is set when such a request has arrived, so that a test can act during an executor's read.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOLD_SECONDS_MAX = 120
"""Maximum delay of a request in seconds, longer than any test takes."""
NOT_PASSED_ON = {"connection", "transfer-encoding", "content-length", "server", "date"}


class StallingProxy(ThreadingHTTPServer):
    """Forward requests to ``target``; GETs whose path contains ``key_part`` wait until ``release`` is set."""

    def __init__(self, target: str, key_part: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.target = urlsplit(target).netloc
        self.key_part = key_part
        self.stalled = threading.Semaphore(0)
        self.release = threading.Event()

    def wait_for_reader(self, seconds: float = 60) -> None:
        """Return when one more request is being delayed."""
        assert self.stalled.acquire(timeout=seconds), "nobody asked for the key in time"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of readers that were killed during a request."""


class _Handler(BaseHTTPRequestHandler):
    server: StallingProxy
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command == "GET" and self.server.key_part in self.path:
            self.server.stalled.release()
            self.server.release.wait(HOLD_SECONDS_MAX)
        connection = http.client.HTTPConnection(self.server.target, timeout=HOLD_SECONDS_MAX)
        try:
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            self._answer(answer, answer.read())
        finally:
            connection.close()

    def _answer(self, answer: http.client.HTTPResponse, body: bytes) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in NOT_PASSED_ON:
                self.send_header(name, value)
        size = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", size or str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815 - names given by the standard library

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def stalling_proxy(target: str, key_part: str) -> Iterator[StallingProxy]:
    """Run a proxy for the S3 server at ``target``; at the end release all delayed requests."""
    proxy = StallingProxy(target, key_part)
    # Threads that wait for a reader that has exited end with the process.
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield proxy
    finally:
        proxy.release.set()
        proxy.shutdown()
        thread.join()
        proxy.server_close()
