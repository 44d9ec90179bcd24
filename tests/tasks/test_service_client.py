"""The service client against a real HTTP server whose answers are scripted."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from engine.protocol import wire
from engine.protocol.messages import Assignment, JobUpdate, LeaseGrant, PollRequest, PollResponse, UpdateStatus
from tasks.errors import CredentialRefused, PollRefused, ServiceUnavailable
from tasks.service_client import ATTEMPTS_MAX, ServiceClient

Answer = tuple[int, bytes]
REQUEST = PollRequest(
    worker="sand",
    build="1",
    capacity=3,
    updates=(JobUpdate(job="job-a", token="token-1", status=UpdateStatus.SUCCESS, result={"blocks": []}),),
)
RESPONSE = PollResponse(
    leases=(LeaseGrant(job="job-a", token="token-1", expires_in=15.0),),
    assignments=(Assignment(job="job-b", token="token-2", spec={"kind": "profiles"}, expires_in=15.0),),
)
GOOD: Answer = (200, json.dumps(wire.response_to_wire(RESPONSE)).encode())


class ScriptedService:
    """Gives the prepared answers in order (the last one again and again) and keeps the requests."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [GOOD]
        self.asked: list[tuple[str, str, dict[str, object]]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.asked.append((self.path, self.headers.get("Authorization", ""), json.loads(body)))
                status, content = service.answers.pop(0) if len(service.answers) > 1 else service.answers[0]
                if status == 0:
                    return  # the connection just ends
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    service = ScriptedService()
    yield service
    service.close()


@pytest.fixture
def client(service: ScriptedService) -> Iterator[ServiceClient]:
    client = ServiceClient(service.url + "/", "lw_key_secret", pause=lambda seconds: None)
    yield client
    client.close()


def test_a_poll_carries_everything_and_brings_everything(service: ScriptedService, client: ServiceClient) -> None:
    assert client.poll(REQUEST) == RESPONSE
    path, authorization, body = service.asked[0]
    assert (path, authorization) == ("/api/v1/jobs/poll", "Bearer lw_key_secret")
    assert wire.request_from_wire(body) == REQUEST


@pytest.mark.parametrize(
    "trouble", [(503, b"busy"), (500, b"oops"), (429, b"slow"), (404, b"not yet"), (0, b""), (200, b"<html>")]
)
def test_passing_trouble_is_tried_again(service: ScriptedService, client: ServiceClient, trouble: Answer) -> None:
    service.answers = [trouble, trouble, GOOD]
    assert client.poll(REQUEST) == RESPONSE
    assert len(service.asked) == 3


def test_every_attempt_without_an_answer_is_noted(service: ScriptedService, client: ServiceClient) -> None:
    lost: list[int] = []
    client.on_response_lost = lambda: lost.append(1)
    service.answers = [(503, b"busy"), (0, b""), GOOD]
    client.poll(REQUEST)
    client.poll(REQUEST)
    assert len(lost) == 2


def test_lasting_trouble_ends_after_a_few_attempts(service: ScriptedService, client: ServiceClient) -> None:
    service.answers = [(503, b"busy")]
    with pytest.raises(ServiceUnavailable, match="503 busy"):
        client.poll(REQUEST)
    assert len(service.asked) == ATTEMPTS_MAX


def test_a_refused_connection_is_service_unavailable(service: ScriptedService) -> None:
    service.close()
    client = ServiceClient(service.url, "lw_key_secret", pause=lambda seconds: None)
    with pytest.raises(ServiceUnavailable, match="ConnectError"):
        client.poll(REQUEST)
    client.close()


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_credential_is_not_tried_again(service: ScriptedService, client: ServiceClient, status: int) -> None:
    service.answers = [(status, b'{"code": "credential_refused"}')]
    with pytest.raises(CredentialRefused):
        client.poll(REQUEST)
    assert len(service.asked) == 1


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_poll_is_not_tried_again(service: ScriptedService, client: ServiceClient, status: int) -> None:
    service.answers = [(status, b'{"code": "invalid_message", "message": "updates[0].result"}')]
    with pytest.raises(PollRefused, match="invalid_message"):
        client.poll(REQUEST)
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"leases": [], "assignments": [{}]}', b'{"leases": 1, "assignments": []}', b"\xff"],
)
def test_an_answer_that_is_no_poll_response_is_unavailable(
    service: ScriptedService, client: ServiceClient, content: bytes
) -> None:
    service.answers = [(200, content)]
    with pytest.raises(ServiceUnavailable):
        client.poll(REQUEST)


def test_an_endless_answer_is_cut_off(
    service: ScriptedService, client: ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.service_client.RESPONSE_BYTES_MAX", 1000)
    service.answers = [(200, b" " * 5000)]
    with pytest.raises(ServiceUnavailable, match="larger than"):
        client.poll(REQUEST)
