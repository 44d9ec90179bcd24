"""The schedule double behind a real HTTP server, as a node in another process sees the service."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.protocol import wire
from engine.protocol.messages import Assignment, PollRequest, PollResponse
from tasks.leases import Pair
from tests.tasks.doubles import ScheduleDouble

CREDENTIAL = "lw_key_secret"


class HttpSchedule(ScheduleDouble):
    """Offers real specifications; every worker's requests are kept in order."""

    def __init__(self, *, lease_seconds: float = 15.0) -> None:
        super().__init__(lease_seconds=lease_seconds)
        self.specs: dict[str, dict[str, object]] = {}
        schedule = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_known = self.headers.get("Authorization") == f"Bearer {CREDENTIAL}"
                answer = schedule.answer(wire.request_from_wire(json.loads(body))) if is_known else b"{}"
                self.send_response(200 if is_known else 401)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, request: PollRequest) -> bytes:
        """Poll and encode; assignments carry their real specification."""
        response = self.poll(request)
        assignments = tuple(
            Assignment(job=one.job, token=one.token, spec=self.specs[one.job], expires_in=one.expires_in)
            for one in response.assignments
        )
        return json.dumps(wire.response_to_wire(PollResponse(leases=response.leases, assignments=assignments))).encode()

    def offer_spec(self, spec: ProfileMergeSpec) -> Pair:
        """Put a real job on the schedule, under a token named after its fence."""
        self.specs[spec.job] = spec.to_json()
        pair = (spec.job, f"token-{spec.fence}")
        self.offer(pair)
        return pair

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
