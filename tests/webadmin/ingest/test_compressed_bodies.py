"""Bodies that cost more than they hold are refused early, and their cost is charged to the sender."""

from __future__ import annotations

import gzip
import io
import random

import pytest

from tests.webadmin.ingest.conftest import Doors
from webadmin.base.compressed_bodies import BadGzip, BodyBreaksOff, BodyTooLarge, UnreadableBody, read_body

MIB = 1 << 20
EMPTY_MEMBER = gzip.compress(b"")
NOISE = random.Random(7).randbytes(MIB)


class Counted(io.BytesIO):
    """A stream that knows how far it was read."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(size)


def refused(body: bytes, *, gzipped: bool = True, limit: int = 64 * MIB) -> tuple[UnreadableBody, int]:
    stream = Counted(body)
    with pytest.raises(UnreadableBody) as caught:
        read_body(stream, gzipped=gzipped, limit=limit)
    return caught.value, stream.tell()


def test_empty_members_are_counted() -> None:
    assert read_body(Counted(gzip.compress(b"a") + EMPTY_MEMBER * 63), gzipped=True, limit=MIB) == b"a"
    error, read = refused(EMPTY_MEMBER * 1_000_000)
    assert isinstance(error, BadGzip)
    assert "64 members" in str(error)
    assert error.work_bytes == read < MIB


def test_compressed_bytes_are_bounded_as_unpacked_ones_are() -> None:
    # A member that unpacks to nothing although it is long: stored blocks without content.
    stored = EMPTY_MEMBER[:10] + b"\x00\x00\x00\xff\xff" * MIB + b"\x01\x00\x00\xff\xff" + bytes(8)
    error, read = refused(stored, limit=MIB)
    assert isinstance(error, BodyTooLarge)
    assert error.work_bytes == read <= MIB + (1 << 18)


def test_a_body_that_unpacks_to_far_more_than_it_has_is_refused() -> None:
    assert read_body(Counted(gzip.compress(bytes(MIB))), gzipped=True, limit=64 * MIB) == bytes(MIB)
    error, _ = refused(gzip.compress(bytes(32 * MIB)))
    assert isinstance(error, BadGzip)
    assert "200 times" in str(error)
    assert MIB < error.work_bytes < 16 * MIB
    whole = gzip.compress(NOISE + bytes(32 * MIB))
    assert len(read_body(Counted(whole), gzipped=True, limit=64 * MIB)) == 33 * MIB


def test_a_body_that_breaks_off_is_none() -> None:
    class Broken(Counted):
        def read(self, size: int | None = -1) -> bytes:
            if part := super().read(size):
                return part
            raise OSError("gone")

    with pytest.raises(BodyBreaksOff) as caught:
        read_body(Broken(b"abc"), gzipped=False, limit=MIB)
    assert caught.value.work_bytes == 3


PUSH, OTLP, INGEST = "/push.v1.PusherService/Push", "/v1development/profiles", "/ingest?name=a"
BOMB = gzip.compress(bytes(32 * MIB))


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        pytest.param(PUSH, BOMB, "application/proto", id="push"),
        pytest.param(OTLP, BOMB, "application/x-protobuf", id="OTLP"),
        pytest.param(PUSH, EMPTY_MEMBER * 100_000, "application/proto", id="empty members"),
        pytest.param(INGEST, bytes(65 * MIB), "text/plain", id="a body that is too large"),
    ],
)
def test_refused_bodies_are_charged_and_a_tenant_in_debt_is_not_read(
    doors: Doors, path: str, body: bytes, kind: str
) -> None:
    headers = {"X-Scope-OrgID": "acme"} | ({} if path == INGEST else {"Content-Encoding": "gzip"})
    statuses = []
    while 429 not in statuses and len(statuses) < 200:
        statuses.append(doors.post(path, body, kind, **headers).status_code)
    assert statuses[0] in (400, 413)
    assert statuses[-1] == 429
    assert set(doors.counts()) <= {("acme", reason) for reason in ("bad_gzip", "body_size_limit", "rate_limited")}
    other = doors.post(path, b"", kind, **{**headers, "X-Scope-OrgID": "other"})
    assert other.status_code != 429
