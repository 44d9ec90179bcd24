"""``/ingest`` and OTLP over HTTP: which status what gets, and that it is found at the writer."""

from __future__ import annotations

import gzip
import json
import time
from typing import Any

import pytest
from google.protobuf import json_format

from engine.formats.pprof.pprof import parse_profile
from engine.formats.proto import otlp_profiles_pb2 as otlp
from tests.webadmin.ingest.conftest import Doors
from tests.webadmin.ingest.pushes import fresh_pprof
from webadmin.base.query_times import parse_time

OTLP = "/v1development/profiles"
OTLP_TYPE = "application/x-protobuf"


def form(**parts: bytes) -> tuple[bytes, str]:
    """Return a form of file parts and its type."""
    lines = []
    for name, data in parts.items():
        head = f'--limit\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n\r\n'
        lines.append(head.encode() + data + b"\r\n")
    return b"".join(lines) + b"--limit--\r\n", "multipart/form-data; boundary=limit"


@pytest.mark.parametrize("path", ["/ingest", "/pyroscope/ingest"])
def test_folded_text_is_taken_under_both_addresses(doors: Doors, path: str) -> None:
    now = int(time.time())
    response = doors.post(f"{path}?name=app{{region=eu}}&from={now}&spyName=test", b"a;b 3\na;c 4\n", "text/plain")
    assert (response.status_code, response.content) == (200, b"")
    (series,) = doors.series()
    labels = dict(series.labels)
    assert (labels["__name__"], labels["service_name"], labels["region"]) == ("process_cpu", "app", "eu")
    assert parse_profile(series.pprof).time_ns == now * 10**9


def test_a_form_with_a_profile_is_taken_and_its_plain_fields_are_not(doors: Doors) -> None:
    body, kind = form(profile=gzip.compress(fresh_pprof()), sample_type_config=b"{}")
    assert doors.post("/ingest?name=app", body, kind).status_code == 200
    assert len(doors.series()) == 1
    plain = b'--limit\r\nContent-Disposition: form-data; name="profile"\r\n\r\nx\r\n--limit--\r\n'
    assert doors.post("/ingest?name=app", plain, kind).status_code == 200
    assert len(doors.series()) == 1


@pytest.mark.row("profile-api-12")
def test_an_empty_profile_part_is_accepted_and_stores_nothing(doors: Doors) -> None:
    body, kind = form(profile=b"")
    assert doors.post("/ingest?name=app", body, kind).status_code == 200
    assert not doors.series()


REFUSALS = {
    "no name": ("", b"a 1", "text/plain", 400, "bad_name"),
    "a bad name": ("name=a b", b"a 1", "text/plain", 400, "bad_name"),
    "an unknown type": ("name=demo.app", b"a 1", "text/plain", 400, "unknown_profile_type"),
    "a bad count": ("name=app", b"a x1", "text/plain", 422, "malformed_profile"),
    "a negative count": ("name=app", b"a -1", "text/plain", 422, "malformed_profile"),
    "no pprof": ("name=app&format=pprof", b"junk", "x/y", 422, "malformed_profile"),
    "no speedscope": ("name=app&format=speedscope", b"{}", "application/json", 422, "malformed_profile"),
    "JFR": ("name=app&format=jfr", b"FLR\0", "x/y", 422, "unsupported_format"),
    "a tree with a giant name": ("name=app&format=tree", b"\xff" * 9 + b"\x01", "x/y", 422, "malformed_profile"),
    "text of last year": ("name=app&from=1600000000", b"a 1", "text/plain", 400, "not_in_ingestion_window"),
    "a form without a boundary": ("name=app", b"x", "multipart/form-data", 422, "unsupported_format"),
    "a profile with the one before": ("name=app", *form(profile=b"x", prev_profile=b"x"), 422, "unsupported_format"),
}  # fmt: skip
"""Query, body and type, then status and counted reason."""


@pytest.mark.parametrize("name", REFUSALS)
def test_ingest_refuses_with_the_status_of_the_reference_and_counts(doors: Doors, name: str) -> None:
    query, body, kind, status, reason = REFUSALS[name]
    response = doors.post(f"/ingest?{query}", body, kind)
    assert (response.status_code, json.loads(response.content)["code"]) == (status, "invalid_argument")
    assert doors.counts() == {("anonymous", reason): 1}
    assert not doors.series()


@pytest.mark.row("profile-api-20")
def test_invalid_text_in_a_profile_is_400_by_push_and_422_by_ingest(doors: Doors) -> None:
    bad = fresh_pprof(("leaf", "root")).replace(b"leaf", b"\xffeaf")
    assert doors.post("/ingest?name=app&format=pprof", bad, "x/y").status_code == 422


def test_only_posts_are_taken(doors: Doors) -> None:
    for path in ("/ingest", OTLP, "/push.v1.PusherService/Push"):
        response = doors.client.get(path)
        assert (response.status_code, response["Allow"]) == (405, "POST")


def otlp_request() -> otlp.ExportRequest:
    """Return one CPU profile of this moment."""
    request = otlp.ExportRequest()
    names = ["", "samples", "count", "cpu", "nanoseconds", "work"]
    request.dictionary.string_table.extend(names)
    for table in ("mapping_table", "location_table", "function_table", "link_table", "attribute_table", "stack_table"):
        getattr(request.dictionary, table).add()
    request.dictionary.function_table.add(name_strindex=5)
    request.dictionary.location_table.add().lines.add(function_index=1)
    request.dictionary.stack_table.add(location_indices=[1])
    resource = request.resource_profiles.add()
    resource.resource.attributes.add(key="service.name", value=otlp.AnyValue(string_value="shop"))
    profile = resource.scope_profiles.add().profiles.add(time_unix_nano=time.time_ns(), period=10_000_000)
    profile.sample_type.type_strindex, profile.sample_type.unit_strindex = 1, 2
    profile.period_type.type_strindex, profile.period_type.unit_strindex = 3, 4
    profile.samples.add(stack_index=1, values=[100])
    return request


def test_otlp_profiles_are_accepted_in_protobuf_and_json_and_answered_in_protobuf(doors: Doors) -> None:
    request = otlp_request()
    bodies = [
        (request.SerializeToString(), OTLP_TYPE, {}),
        (gzip.compress(request.SerializeToString()), "application/protobuf", {"Content-Encoding": "gzip"}),
        (json_format.MessageToJson(request).encode(), "application/json", {}),
    ]
    for body, kind, headers in bodies:
        response = doors.post(OTLP, body, kind, **headers)
        assert (response.status_code, response["Content-Type"], response.content) == (200, OTLP_TYPE, b"")
    path = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
    assert doors.post(path, bodies[0][0], OTLP_TYPE).status_code == 200
    names = {dict(series.labels)["service_name"] for series in doors.series()}
    assert (len(doors.series()), names) == (4, {"shop"})


def test_an_empty_otlp_request_is_fine(doors: Doors) -> None:
    assert doors.post(OTLP, b"", OTLP_TYPE).status_code == 200


OTLP_REFUSALS = {
    "another type": (b"", "text/plain", {}, 415, "content_type"),
    "gRPC": (b"\0\0\0\0\0", "application/grpc", {}, 415, "content_type"),
    "a type with parameters": (b"{}", "application/json; charset=utf-8", {}, 415, "content_type"),
    "no protobuf": (b"\xff\xff", OTLP_TYPE, {}, 400, "malformed_request"),
    "broken gzip": (b"junk", OTLP_TYPE, {"Content-Encoding": "gzip"}, 400, "bad_gzip"),
    "an unknown encoding": (b"", OTLP_TYPE, {"Content-Encoding": "zstd"}, 400, "content_encoding"),
}


@pytest.mark.parametrize("name", OTLP_REFUSALS)
def test_otlp_refuses_in_plain_text_and_counts(doors: Doors, name: str) -> None:
    body, kind, headers, status, reason = OTLP_REFUSALS[name]
    response = doors.post(OTLP, body, kind, **headers)
    assert (response.status_code, response["Content-Type"]) == (status, "text/plain; charset=utf-8")
    assert doors.counts() == {("anonymous", reason): 1}


def test_otlp_without_a_credential_is_refused(doors: Doors, settings: Any) -> None:
    settings.TRUST_TENANT_HEADER = False
    assert doors.post(OTLP, b"", OTLP_TYPE).status_code == 401
    assert doors.post("/ingest?name=app", b"a 1", "text/plain").status_code == 401


NOW_S = 1_577_836_800


@pytest.mark.row("profile-api-52")
@pytest.mark.parametrize(("text", "seconds"), [("now-1min", NOW_S - 60), ("now-1mon", NOW_S - 2_592_000), ("now-1M", NOW_S - 2_592_000), ("now-1", NOW_S), ("", NOW_S), ("nonsense", NOW_S), ("now-1h30m", NOW_S - 5_400), ("now+1d", NOW_S + 86_400), ("20200101", NOW_S), ("1577836800", NOW_S), ("1577836800001", NOW_S + 0.001), ("1577836800000001", NOW_S + 1e-6), ("1577836800000000000", NOW_S), ("9" * 60, 253_402_300_799.0), ("now-99999y", 0)])  # fmt: skip  # noqa: E501
def test_times_of_senders_are_parsed_in_all_formats(text: str, seconds: float) -> None:
    assert parse_time(text, NOW_S) == pytest.approx(seconds, abs=1e-6)
