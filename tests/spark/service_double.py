"""The service as a Spark job sees it, without a database: it answers every look at the index with the same blocks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from engine.formats.profile_block.model import BlockMeta


def block_to_json(key: str, meta: BlockMeta) -> dict[str, Any]:
    """Return a block as the index tells of it."""
    return {
        "object_key": key,
        "size": meta.size,
        "datasets": [
            {
                "position": position,
                "tenant": dataset.tenant,
                "name": dataset.name,
                "format": dataset.format,
                "min_time_ms": dataset.min_time_ms,
                "max_time_ms": dataset.max_time_ms,
                "size": dataset.size,
                "table_of_contents": list(dataset.table_of_contents),
                "masks": [],
                "labels": [dict(labels) for labels in dataset.labels],
            }
            for position, dataset in enumerate(meta.datasets)
        ],
    }


@contextmanager
def service_double(answer: dict[str, Any]) -> Iterator[str]:
    """Serve an answer on this machine; yields the service's URL."""
    content = json.dumps(answer).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
