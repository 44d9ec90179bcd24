"""S3 answers that are not success: scripted by a real HTTP server, so that every layer below us takes part."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from engine.storage import ConditionalCreate, ConditionRefused, InvalidRange, ObjectStore, StorageError, open_store
from engine.storage.retry import RetryPolicy
from engine.storage.s3 import PART_SIZE

ERROR = "<Error><Code>{code}</Code><Message>because</Message></Error>"


class ScriptedS3(ThreadingHTTPServer):
    """Answers each request with the next entry of ``answers``: (status, body, headers); records the requests."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: deque[tuple[int, bytes, dict[str, str]]] = deque()
        self.asked: list[str] = []

    def then(self, status: int, body: bytes = b"", **headers: str) -> ScriptedS3:
        self.answers.append((status, body, {name.replace("_", "-"): value for name, value in headers.items()}))
        return self

    def then_error(self, status: int, code: str) -> ScriptedS3:
        return self.then(status, ERROR.format(code=code).encode(), Content_Type="application/xml")


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedS3
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        names = sorted(parse_qs(urlsplit(self.path).query, keep_blank_values=True))
        self.server.asked.append(" ".join([self.command, *names]))
        status, body, headers = self.server.answers.popleft()
        self.send_response(status)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", headers.pop("Content-Length", str(len(body))))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815 - names given by the standard library

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    server = ScriptedS3()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def store(server: ScriptedS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    url = f"s3://bucket?endpoint=http://127.0.0.1:{server.server_port}"
    store = open_store(url, retry_policy=RetryPolicy(attempts=3, sleep=lambda seconds: None))
    yield store
    store.close()


def test_requests_to_a_busy_store_are_retried_and_each_counts(store: ObjectStore, server: ScriptedS3) -> None:
    server.then_error(503, "SlowDown").then_error(500, "InternalError").then(200, b"content")
    assert store.get("a") == b"content"
    assert store.usage.requests() == {"get": 3}
    assert store.usage.bytes() == {"get": 7}


def test_a_body_that_breaks_off_is_read_again(store: ObjectStore, server: ScriptedS3) -> None:
    server.then(200, b"cont", Content_Length="7").then(200, b"content")
    assert store.get("a") == b"content"


@pytest.mark.slow
def test_retries_end_with_an_error_that_names_operation_and_key(store: ObjectStore, server: ScriptedS3) -> None:
    for _ in range(3):
        server.then_error(503, "SlowDown")
    with pytest.raises(StorageError, match="get 'a': SlowDown because") as caught:
        store.get("a")
    assert caught.value.retryable
    assert len(server.asked) == 3


def test_a_refusal_is_not_repeated(store: ObjectStore, server: ScriptedS3) -> None:
    server.then_error(403, "AccessDenied")
    with pytest.raises(StorageError, match="AccessDenied"):
        store.put("a", b"x")
    assert server.asked == ["PUT"]


def test_a_short_range_is_refused_before_its_body_is_read(store: ObjectStore, server: ScriptedS3) -> None:
    server.then(206, b"xy", Content_Range="bytes 0-1/2")
    with pytest.raises(InvalidRange):
        store.get_range("a", 0, 4)


def test_a_store_that_ignores_ranges_is_noticed(store: ObjectStore, server: ScriptedS3) -> None:
    server.then(200, b"the whole object")
    with pytest.raises(InvalidRange):
        store.get_range("a", 0, 4)


@pytest.mark.slow
@pytest.mark.parametrize(("status", "code"), [(501, "NotImplemented"), (400, "InvalidArgument")])
def test_a_store_without_conditions_is_reported_as_refusing(
    store: ObjectStore, server: ScriptedS3, status: int, code: str
) -> None:
    server.then_error(status, code)
    with pytest.raises(ConditionRefused):
        store.create("a", b"x")
    server.then_error(status, code).then(204)
    assert store.probe_conditional_create() is ConditionalCreate.REFUSED


def test_a_store_that_overlooks_conditions_is_reported_as_ignoring(store: ObjectStore, server: ScriptedS3) -> None:
    server.then(200).then(200).then(200, b"second").then(204)
    assert store.probe_conditional_create() is ConditionalCreate.IGNORED


@pytest.mark.slow
def test_a_create_that_conflicts_with_another_is_retried(store: ObjectStore, server: ScriptedS3) -> None:
    server.then_error(409, "ConditionalRequestConflict").then_error(412, "PreconditionFailed")
    assert not store.create("a", b"x")


BEGUN = b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"


def test_a_failing_part_aborts_the_upload(store: ObjectStore, server: ScriptedS3) -> None:
    server.then(200, BEGUN).then_error(403, "AccessDenied").then(204)

    def stream() -> None:
        with store.open_writer("a") as writer:
            writer.write(bytes(PART_SIZE + 1))

    with pytest.raises(StorageError, match="AccessDenied"):
        stream()
    assert server.asked == ["POST uploads", "PUT partNumber uploadId", "DELETE uploadId"]


def test_a_failing_completion_aborts_the_upload(store: ObjectStore, server: ScriptedS3) -> None:
    server.then(200, BEGUN).then(200, ETag='"1"').then_error(400, "InvalidPart").then(204)
    writer = store.open_writer("a")
    writer.write(bytes(PART_SIZE))
    with pytest.raises(StorageError, match="InvalidPart"):
        writer.commit()
    assert server.asked == ["POST uploads", "PUT partNumber uploadId", "POST uploadId", "DELETE uploadId"]


@pytest.mark.slow
def test_a_completion_whose_answer_was_lost_is_recognised(store: ObjectStore, server: ScriptedS3) -> None:
    server.then(200, BEGUN).then(200, ETag='"1"').then_error(500, "InternalError").then_error(404, "NoSuchUpload")
    server.then(200, Content_Length=str(PART_SIZE), Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT")
    writer = store.open_writer("a")
    writer.write(bytes(PART_SIZE))
    assert writer.commit().size == PART_SIZE
    assert server.asked[2:] == ["POST uploadId", "POST uploadId", "HEAD"]


def test_a_store_that_is_down_is_a_storage_error(store: ObjectStore, server: ScriptedS3) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(StorageError, match="get 'a'"):
        store.get("a")
    assert store.usage.requests() == {"get": 3}
