"""Connect pushes: real recorded requests, series judged one by one, and requests that are none."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.pprof.pprof import RATIO_MAX, parse_profile
from engine.formats.proto import push_pb2
from engine.ingest.model import PushLimits, Refused
from engine.ingest.push import DecodedPush, decode_push
from tests.engine.ingest.senders import NOW_NS, make_pprof

RECORDED = ("auth-and-tenant", "memory-and-cpu", "odd-labels", "server-url-with-prefix", "thread-tags")


def push_of(*series: tuple[dict[str, str], list[bytes]]) -> push_pb2.PushRequest:
    request = push_pb2.PushRequest()
    for labels, profiles in series:
        one = request.series.add()
        for name, value in labels.items():
            one.labels.add(name=name, value=value)
        for profile in profiles:
            one.samples.add(raw_profile=profile)
    return request


def decoded(request: push_pb2.PushRequest, limits: PushLimits | None = None) -> DecodedPush:
    return decode_push(request.SerializeToString(), is_json=False, limits=limits or PushLimits(), now_ns=NOW_NS)


CPU = {"__name__": "process_cpu", "service_name": "web"}


@pytest.mark.foreign_data
@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_request_of_the_sdk_is_taken_whole(foreign_data: Path, name: str) -> None:
    expected = json.loads((foreign_data / "push" / "expected.json").read_text())[name]["series"]
    body = gzip.decompress((foreign_data / "push" / f"{name}.bin").read_bytes())
    now_ns = expected[0]["samples"][0]["time_nanos"] + 10**9
    push = decode_push(body, is_json=False, limits=PushLimits(), now_ns=now_ns)
    assert push.refused == ()
    assert len(push.profiles) == sum(len(series["samples"]) for series in expected)
    for profile, series in zip(push.profiles, expected, strict=True):
        (sample,) = series["samples"]
        assert profile.labels == tuple(sorted((label, value) for label, value in series["labels"]))
        assert (profile.profile.time_ns, len(profile.profile.samples)) == (sample["time_nanos"], sample["samples"])
        assert len(profile.pprof) == sample["raw_profile_bytes"]
        values = profile.profile.samples.values.reshape(-1, len(profile.profile.sample_types)).sum(axis=0)
        assert values.tolist() == [graph["total"] for graph in sample["flame_graph_per_sample_type"]]


def test_gzipped_and_plain_profiles_are_distinguished_by_their_first_bytes() -> None:
    plain = make_pprof()
    push = decoded(push_of((CPU, [plain, gzip.compress(plain)])))
    assert [profile.pprof for profile in push.profiles] == [plain, plain]


def test_json_spells_the_same_request() -> None:
    body = {
        "series": [
            {
                "labels": [{"name": name, "value": value} for name, value in CPU.items()],
                "samples": [{"rawProfile": base64.b64encode(make_pprof()).decode(), "ID": "any"}],
                "unknown": 1,
            }
        ]
    }
    push = decode_push(json.dumps(body).encode(), is_json=True, limits=PushLimits(), now_ns=NOW_NS)
    assert push.profiles == decoded(push_of((CPU, [make_pprof()]))).profiles


def test_good_series_are_taken_though_others_are_refused() -> None:
    push = decoded(push_of((CPU, [make_pprof()]), ({"service_name": "x"}, [make_pprof()]), (CPU, [b"junk"])))
    assert len(push.profiles) == 1
    assert [refused.reason for refused in push.refused] == ["invalid_labels", "malformed_profile"]


@pytest.mark.row("profile-api-29", "profile-api-30")
@pytest.mark.parametrize("series", [[], [(CPU, [])]])
def test_a_push_without_profiles_is_refused(series: list[tuple[dict[str, str], list[bytes]]]) -> None:
    with pytest.raises(Refused, match="no profiles received"):
        decoded(push_of(*series))


@pytest.mark.row("profile-api-26")
def test_a_profile_over_the_size_limit_is_refused_compressed_or_not() -> None:
    profile = make_pprof()
    limits = PushLimits(profile_bytes_max=len(profile) - 1)
    push = decoded(push_of((CPU, [profile]), (CPU, [gzip.compress(profile)])), limits)
    assert [refused.reason for refused in push.refused] == ["profile_size_limit"] * 2
    assert "uncompressed profile payload size exceeds limit of" in push.refused[0].message


@pytest.mark.row("profile-api-27")
def test_two_profiles_over_the_body_limit_together_are_refused() -> None:
    profile = make_pprof()
    push = decoded(push_of((CPU, [profile, profile])), PushLimits(body_bytes_max=2 * len(profile) - 1))
    assert (push.profiles, push.refused[0].reason) == ((), "profile_size_limit")


def test_what_was_cut_parses_to_what_was_checked() -> None:
    deep = make_pprof(tuple("abcdef"))
    (profile,) = decoded(push_of((CPU, [deep])), PushLimits(stack_frames_max=3)).profiles
    assert profile.notes
    assert parse_profile(profile.pprof).samples.location_ids.tolist() == profile.profile.samples.location_ids.tolist()


def test_a_gzip_bomb_is_refused_before_it_unzips() -> None:
    bomb = gzip.compress(bytes(50 << 20))
    push = decoded(push_of((CPU, [bomb])))
    assert push.refused[0].reason == "profile_size_limit"


def test_profiles_that_are_refused_count_as_work_and_towards_the_body_limit() -> None:
    plain, zeros = make_pprof(), gzip.compress(bytes(1 << 20))
    push = decoded(push_of((CPU, [plain]), *[(CPU, [zeros])] * 20))
    assert len(push.profiles) == 1
    # The first has the free size of the request, the others the ratio alone.
    assert push.work_bytes == len(plain) + (1 << 20) + 19 * (RATIO_MAX * len(zeros) + 1)
    push = decoded(push_of(*[(CPU, [zeros])] * 50, (CPU, [plain])), PushLimits(body_bytes_max=2 << 20))
    assert push.work_bytes < 3 << 20
    assert not push.profiles
    assert "exceeds limit of 2097152" in push.refused[-1].message
    damaged = zeros[:-8] + bytes(8)
    assert decoded(push_of((CPU, [damaged]))).work_bytes >= 1 << 20


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_a_push_or_are_refused(body: bytes, is_json: bool) -> None:
    try:
        push = decode_push(body, is_json=is_json, limits=PushLimits(), now_ns=NOW_NS)
    except Refused as refused:
        assert refused.reason in {"malformed_request", "no_profiles"}  # noqa: PT017 — both are fine, others are not
    else:
        assert push.profiles or push.refused


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"series": 1}', b'{"series": [' + b"[" * 500, b'{"series":[{"labels":"x"}]}']
)
def test_json_that_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        decode_push(body, is_json=True, limits=PushLimits(), now_ns=NOW_NS)
