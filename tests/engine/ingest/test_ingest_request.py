"""Requests to /ingest: which format wins, what pprof pushes measured, repairs, refusals (format sheet, 3.3 to 3.9)."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.pprof.pprof import parse_profile
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder, ValueType
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.pprof.pprof_model import Profile
from engine.ingest.ingest_request import IngestRequest, bytes_of, decode_ingest, rate_of
from engine.ingest.model import PushedProfile, PushLimits, Refused
from tests.engine.ingest.senders import NOW_NS, make_pprof

FORM = "multipart/form-data; boundary=x"


REFUSED_FILES = {"dotnet-3.pb.gz": "malformed_profile"}
"""Without the name of its profiler, a .NET profile has functions without ids."""


def ingested(
    body: bytes = b"", *, name: str = "app", limits: PushLimits | None = None, **fields: object
) -> list[PushedProfile]:
    request = IngestRequest(name=name, from_ns=NOW_NS - 10**9, body=body, **fields)  # type: ignore[arg-type]
    return decode_ingest(request, limits or PushLimits(), now_ns=NOW_NS)


def typed(*types: ValueType, period_type: ValueType = ("", ""), file: str = "app.py", function: str = "main") -> bytes:
    builder = ProfileBuilder(types, period_type=period_type, period=1)
    builder.add([Frame(function, file, 1, 2)], [1] * len(types))
    return encode_profile(builder.profile(time_ns=NOW_NS - 10**9, duration_ns=0), compress=False)


def profile_types(pushed: PushedProfile) -> list[str]:
    profile, metric = pushed.profile, dict(pushed.labels)["__name__"]
    period = [profile.strings[ref].decode() for ref in profile.period_type]
    return [
        ":".join([metric, *(profile.strings[ref].decode() for ref in pair), *period]) for pair in profile.sample_types
    ]


def function_names(profile: Profile) -> list[str]:
    return [profile.strings[ref].decode() for ref in profile.functions.names.tolist()]


@pytest.mark.row("profile-api-9")
@pytest.mark.parametrize(("text", "rate"), [("-1", 100), ("0", 0), ("abc", 100), ("97", 97), ("", 100)])
def test_the_sample_rate_is_parsed_with_a_default(text: str, rate: int) -> None:
    assert rate_of(text) == rate


@pytest.mark.parametrize("kind", ["", "folded", "collapsed", "groups", "anything"])
def test_what_names_no_format_is_folded_lines(kind: str) -> None:
    (pushed,) = ingested(b"foo;bar 3", format=kind)
    assert pushed.profile.samples.values.tolist() == [3 * 10**7]


def test_format_or_type_name_a_tree_and_the_first_row_that_fits_wins() -> None:
    tree = bytes.fromhex("000001 01 61 0001 01 62 0100")
    (by_format,), (by_type,) = ingested(tree, format="tree"), ingested(tree, content_type="binary/octet-stream+tree")
    assert by_format == by_type
    (first_row_wins,) = ingested(tree, format="lines", content_type="binary/octet-stream+tree")
    assert first_row_wins == by_type


@pytest.mark.row("profile-api-12")
def test_a_form_with_an_empty_profile_is_accepted_and_stores_nothing() -> None:
    assert ingested(content_type=FORM, parts={"profile": b""}) == []
    assert ingested(content_type=FORM) == []


@pytest.mark.row("profile-api-13")
def test_a_form_with_a_previous_profile_is_refused() -> None:
    with pytest.raises(Refused, match="unsupported client version"):
        ingested(content_type=FORM, parts={"profile": make_pprof(), "prev_profile": make_pprof()})


HEAP = [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
CONFIG = {"alloc_objects": {"units": "objects"}, "goroutine": {"display-name": "goroutines"}, "contentions": {"display-name": "mutex_count"}, "delay": {"display-name": "mutex_duration"}}  # fmt: skip  # noqa: E501
BLOCK = {"contentions": {"display-name": "block_count"}, "delay": {"display-name": "block_duration"}}


@pytest.mark.row("profile-api-14", "profile-api-15", "profile-api-16", "profile-api-17", "profile-api-18")
@pytest.mark.parametrize(
    ("types", "period_type", "config", "expected"),
    [
        pytest.param(
            HEAP,
            ("space", "bytes"),
            None,
            [f"memory:{kind}:{unit}:space:bytes" for kind, unit in HEAP],
            id="row 14 heap of Go",
        ),
        pytest.param(
            [("samples", "count"), ("cpu", "nanoseconds")],
            ("cpu", "nanoseconds"),
            None,
            ["process_cpu:samples:count:cpu:nanoseconds", "process_cpu:cpu:nanoseconds:cpu:nanoseconds"],
            id="row 15 CPU of Go",
        ),
        pytest.param(
            [("sample", "count"), ("wall", "microseconds")],
            ("wall", "microseconds"),
            None,
            ["wall:sample:count:wall:microseconds", "wall:wall:microseconds:wall:microseconds"],
            id="row 16 wall of Node",
        ),
        pytest.param(
            [("goroutine", "count")],
            ("goroutine", "count"),
            CONFIG,
            ["goroutines:goroutine:count:goroutine:count"],
            id="row 17 goroutines",
        ),
        pytest.param(
            [("contentions", "count"), ("delay", "nanoseconds")],
            ("contentions", "count"),
            BLOCK,
            ["block:contentions:count:contentions:count", "block:delay:nanoseconds:contentions:count"],
            id="row 17 block",
        ),
        pytest.param(
            [("contentions", "count"), ("delay", "nanoseconds")],
            ("contentions", "count"),
            None,
            ["mutex:contentions:count:contentions:count", "mutex:delay:nanoseconds:contentions:count"],
            id="row 17 mutex",
        ),
        pytest.param(
            [("samples", "count")], ("", "milliseconds"), None, ["process_cpu:samples:count::milliseconds"], id="row 18"
        ),
        pytest.param([("odd", "count")], ("", ""), None, ["odd:odd:count::"], id="a type of its own"),
    ],
)
def test_the_metric_follows_from_the_sample_types(
    types: list[ValueType], period_type: ValueType, config: object, expected: list[str]
) -> None:
    parts = {"profile": typed(*types, period_type=period_type)}
    if config is not None:
        parts["sample_type_config"] = json.dumps(config).encode()
    (pushed,) = ingested(content_type=FORM, parts=parts)
    assert profile_types(pushed) == expected


@pytest.mark.row("profile-api-19")
def test_functions_with_id_0_are_repaired_for_the_dotnet_profiler_only() -> None:
    profile = parse_profile(typed(("inuse-space", "bytes")))
    profile.functions.ids[:] = 0
    profile.locations.line_function_ids[:] = 0
    data = encode_profile(profile)
    (pushed,) = ingested(data, format="pprof", spy="dotnetspy")
    assert profile_types(pushed) == ["memory:inuse_space:bytes::"]
    assert pushed.profile.functions.ids.tolist() == pushed.profile.locations.line_function_ids.tolist() == [1]
    with pytest.raises(Refused) as refused:
        ingested(data, format="pprof")
    assert refused.value.reason == "malformed_profile"


@pytest.mark.row("profile-api-21")
@pytest.mark.parametrize(
    ("spy", "file", "name"),
    [
        ("pyspy", "qwe.py", "qwe.py main"),
        ("pyspy", "/abs/qwe.py", "main"),
        ("rbspy", "/a.rb", "/a.rb main"),
        ("gospy", "a.go", "main"),
    ],
)
def test_profilers_of_interpreters_have_the_file_before_the_function_name(spy: str, file: str, name: str) -> None:
    (pushed,) = ingested(typed(("cpu", "nanoseconds"), file=file), format="pprof", spy=spy)
    assert function_names(pushed.profile) == [name]
    assert parse_profile(pushed.pprof).strings == pushed.profile.strings


def test_one_long_file_name_does_not_become_one_of_each_function() -> None:
    builder = ProfileBuilder([("cpu", "nanoseconds")], period_type=("", ""), period=1)
    for number in range(300):
        builder.add([Frame(f"f{number}", "x" * 60_000, 1, 1)], [1])
    data = encode_profile(builder.profile(time_ns=NOW_NS, duration_ns=0))
    with pytest.raises(Refused, match="bytes of names"):
        ingested(data, format="pprof", spy="pyspy")


def test_a_time_in_1970_is_the_time_of_the_push() -> None:
    data = encode_profile(replace(parse_profile(make_pprof()), time_ns=1_800_000_000))
    (pushed,) = ingested(data, format="pprof")
    assert pushed.profile.time_ns == parse_profile(pushed.pprof).time_ns == NOW_NS - 10**9


def test_the_service_is_the_whole_name_and_private_tags_go() -> None:
    (pushed,) = ingested(gzip.compress(make_pprof()), name="my.app.cpu{region=eu,__x__=1}", format="pprof", spy="gospy")
    labels = dict(pushed.labels)
    assert (labels["service_name"], labels["region"], labels["pyroscope_spy"]) == ("my.app.cpu", "eu", "gospy")
    assert "__x__" not in labels


SPEEDSCOPE = {
    "$schema": "https://www.speedscope.app/file-format-schema.json",
    "shared": {"frames": [{"name": "a"}]},
}


def speedscope(*entries: tuple[str, str]) -> bytes:
    profiles = [
        {"type": "sampled", "name": name, "unit": unit, "startValue": 0, "samples": [[0]], "weights": [1]}
        for name, unit in entries
    ]
    return json.dumps({**SPEEDSCOPE, "profiles": profiles}).encode()


def test_one_speedscope_profile_is_cpu_and_several_are_named_by_their_unit() -> None:
    (single,) = ingested(speedscope(("simple.txt", "none")), name="foo", format="speedscope")
    assert profile_types(single) == ["process_cpu:cpu:nanoseconds:cpu:nanoseconds"]
    assert dict(single.labels)["profile_name"] == "simple.txt"
    several = ingested(speedscope(("one", "seconds"), ("two", "seconds")), name="foo", format="speedscope")
    assert [profile_types(one) for one in several] == [["wall:wall:nanoseconds:cpu:nanoseconds"]] * 2
    assert [one.profile.samples.values.tolist() for one in several] == [[10**9]] * 2
    several = ingested(speedscope(("one", "bytes"), ("two", "bytes")), name="foo", format="speedscope")
    assert profile_types(several[0]) == ["memory:samples:bytes::"]
    with pytest.raises(Refused, match="unknown profile type: 'none'"):
        ingested(speedscope(("one", "none"), ("two", "none")), name="app", format="speedscope")


@pytest.mark.parametrize("fields", [{"format": "jfr"}, {"content_type": FORM, "parts": {"jfr": b"x"}}])
def test_jfr_is_refused_with_what_to_send_instead(fields: dict[str, object]) -> None:
    with pytest.raises(Refused, match="send pprof") as refused:
        ingested(b"x", **fields)
    assert refused.value.reason == "unsupported_format"


def test_a_text_push_over_the_size_limit_is_refused() -> None:
    with pytest.raises(Refused, match="exceeds maximum allowed size"):
        ingested(b"a 1\n" * 100, limits=PushLimits(profile_bytes_max=100))


@pytest.mark.parametrize("config", [b"{", b"[]", b'{"a": 1}', b" " * 70_000])
def test_a_config_that_is_none_is_refused(config: bytes) -> None:
    with pytest.raises(Refused, match="sample_type_config"):
        ingested(content_type=FORM, parts={"profile": make_pprof(), "sample_type_config": config})


def test_a_rate_limit_counts_profiles_and_labels() -> None:
    pushed = ingested(b"a 1")
    assert bytes_of(pushed) == len(pushed[0].pprof) + sum(len(n) + len(v) for n, v in pushed[0].labels)


@pytest.mark.foreign_data
def test_real_profiles_of_other_programs_are_taken(foreign_data: Path) -> None:
    ever = 10**19
    limits = PushLimits(
        older_than_now_max_ns=ever, newer_than_now_max_ns=ever, profile_bytes_max=64 << 20, samples_max=10**6
    )
    refused = {}
    for path in sorted((foreign_data / "profiles" / "pprof").glob("*.pb.gz")):
        try:
            (pushed,) = ingested(path.read_bytes(), format="pprof", limits=limits)
        except Refused as error:
            refused[path.name] = error.reason
        else:
            assert parse_profile(pushed.pprof).samples.values.tolist() == pushed.profile.samples.values.tolist()
    assert refused == REFUSED_FILES
    dotnet = (foreign_data / "profiles" / "pprof" / "dotnet-3.pb.gz").read_bytes()
    (pushed,) = ingested(dotnet, format="pprof", limits=limits, spy="dotnetspy")
    assert "process_cpu:alloc_samples:count::nanoseconds" in profile_types(pushed)


@given(st.binary(max_size=120), st.sampled_from(["", "lines", "trie", "tree", "pprof", "speedscope", "jfr"]))
def test_any_body_is_profiles_or_is_refused(body: bytes, kind: str) -> None:
    try:
        found = ingested(body, format=kind)
    except Refused as refused:
        assert refused.message  # noqa: PT017 — a refusal is as good as a profile
    else:
        assert all(parse_profile(one.pprof) == one.profile or one.notes for one in found)
