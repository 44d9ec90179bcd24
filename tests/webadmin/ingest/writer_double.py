"""A segment writer that keeps what it is sent and answers what a test wants."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from engine.ingest.segments.segment_push import PushedSeries, SegmentPush, decode_segment_push
from engine.placement.model import Instance
from engine.placement.ring import EMPTY_RING, Ring, change_ring
from webadmin.ingest.writer.credential import is_authorized

Answer = tuple[int, str, str]
ACCEPTED: Answer = (200, "ok", "")


class WriterDouble:
    """Listens on a port of its own; ``answer`` decides what each push gets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pushes: list[SegmentPush] = []
        self.connections = 0
        self.open: set[socket.socket] = set()
        self.answer: Callable[[SegmentPush], Answer] = lambda push: ACCEPTED
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def series(self) -> list[PushedSeries]:
        """Return every profile it was sent."""
        return [series for push in self.pushes for series in push.series]

    def stop(self) -> None:
        """Be gone as a killed process is: nothing listens, and kept connections break."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def ring_of(*writers: WriterDouble, before: Ring = EMPTY_RING) -> Ring:
    """Return a ring of these writers."""
    return change_ring(before, [Instance(id=writer.name, address=writer.address) for writer in writers])


def _handler(double: WriterDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            double.connections += 1
            double.open.add(self.request)

        def finish(self) -> None:
            double.open.discard(self.request)
            super().finish()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/internal/v1/segments/push"
            push = decode_segment_push(body)
            double.pushes.append(push)
            status, code, message = double.answer(push)
            if not is_authorized(self.headers["Authorization"], double.name):
                status, code, message = 401, "unauthorized", "who are you?"
            answer = json.dumps({"code": code, "message": message}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    return Handler
