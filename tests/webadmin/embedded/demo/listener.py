"""Something that takes pushes over HTTP, remembers them, and answers as scripted."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    """A request as it came; header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> bytes:
        """The unpacked body; every sender here packs it."""
        assert self.headers["content-encoding"] == "gzip"
        return gzip.decompress(self.body)


class Listener:
    """``answers`` are the statuses of the next requests; 200 after that."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[int] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                listener.requests.append(Request(self.path, headers, body))
                status = listener.answers.pop(0) if listener.answers else 200
                said = b"" if status == 200 else b'{"message": "as scripted"}'
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Take nothing more; may be called twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
