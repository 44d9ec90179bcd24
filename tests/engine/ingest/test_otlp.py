"""OTLP profiles: the sheet's rows 57 and 58, references, services per sample, both encodings, hostile requests."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.pprof.pprof import parse_profile
from engine.formats.proto import otlp_profiles_pb2 as otlp
from engine.ingest.model import PushedProfile, PushLimits, Refused
from engine.ingest.otlp import decode_otlp
from tests.engine.ingest.senders import NOW_NS

STRINGS = ["", "samples", "count", "cpu", "nanoseconds", "leaf", "root", "app.py", "thread", "service.name", "off_cpu", "wall", "process.executable.build_id.gnu"]  # fmt: skip  # noqa: E501
INDEX = {string: index for index, string in enumerate(STRINGS)}


def request_of(
    *,
    attributes: dict[str, str] | None = None,
    kind: tuple[str, str] = ("samples", "count"),
    period_type: tuple[str, str] = ("cpu", "nanoseconds"),
    values: Sequence[Sequence[int]] = ((100,),),
) -> otlp.ExportRequest:
    request = otlp.ExportRequest()
    tables = request.dictionary
    tables.string_table.extend(STRINGS)
    tables.mapping_table.add()
    tables.mapping_table.add(filename_strindex=INDEX["app.py"], attribute_indices=[3])
    tables.function_table.add()
    tables.location_table.add()
    tables.stack_table.add()
    for name in ("leaf", "root"):
        tables.function_table.add(name_strindex=INDEX[name], filename_strindex=INDEX["app.py"])
        location = tables.location_table.add(mapping_index=1, address=7)
        location.lines.add(function_index=len(tables.function_table) - 1, line=3)
    tables.stack_table.add(location_indices=[1, 2])
    tables.link_table.add()
    tables.link_table.add(trace_id=bytes(range(16)), span_id=bytes(range(8)))
    tables.attribute_table.add()
    tables.attribute_table.add(key_strindex=INDEX["thread"], value=otlp.AnyValue(string_value="main"))
    tables.attribute_table.add(key_strindex=INDEX["service.name"], value=otlp.AnyValue(string_value="own"))
    build_id = otlp.AnyValue(string_value="abc123")
    tables.attribute_table.add(key_strindex=INDEX["process.executable.build_id.gnu"], value=build_id)
    resource = request.resource_profiles.add()
    for name, value in (attributes or {}).items():
        resource.resource.attributes.add(key=name, value=otlp.AnyValue(string_value=value))
    profile = resource.scope_profiles.add().profiles.add(time_unix_nano=NOW_NS - 10**9, period=10**7)
    profile.sample_type.type_strindex, profile.sample_type.unit_strindex = INDEX[kind[0]], INDEX[kind[1]]
    if period_type[0]:
        profile.period_type.type_strindex = INDEX[period_type[0]]
        profile.period_type.unit_strindex = INDEX[period_type[1]]
    for own in values:
        profile.samples.add(stack_index=1, values=own)
    return request


def only_profile(request: otlp.ExportRequest) -> otlp.Profile:
    return request.resource_profiles[0].scope_profiles[0].profiles[0]


def decoded(request: otlp.ExportRequest) -> tuple[PushedProfile, ...]:
    push = decode_otlp(request.SerializeToString(), is_json=False, limits=PushLimits(), now_ns=NOW_NS)
    assert push.refused == ()
    return push.profiles


def types_of(pushed: PushedProfile) -> str:
    profile = pushed.profile
    refs = (*profile.sample_types[0], *profile.period_type)
    return ":".join([dict(pushed.labels)["__name__"], *(profile.strings[ref].decode() for ref in refs)])


@pytest.mark.row("profile-api-57")
@pytest.mark.parametrize(
    ("attributes", "service"),
    [
        ({}, "unknown_service"),
        ({"process.executable.name": "bash"}, "unknown_service:bash"),
        ({"process.executable.name": "bash", "service.name": "shop"}, "shop"),
    ],
)
def test_the_service_name_follows_from_resource_attributes(attributes: dict[str, str], service: str) -> None:
    (pushed,) = decoded(request_of(attributes=attributes))
    labels = dict(pushed.labels)
    assert labels["service_name"] == service
    assert (labels["__otel__"], labels["__delta__"]) == ("true", "false")


@pytest.mark.row("profile-api-58")
def test_samples_with_a_period_of_cpu_are_nanoseconds() -> None:
    (pushed,) = decoded(request_of())
    assert types_of(pushed) == "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
    assert pushed.profile.samples.values.tolist() == [1_000_000_000]


def test_time_off_the_processor_is_summed_and_has_no_period() -> None:
    (pushed,) = decoded(request_of(kind=("off_cpu", "nanoseconds"), period_type=("", ""), values=[(3, 4)]))
    assert types_of(pushed) == "off_cpu:off_cpu:nanoseconds::"
    assert pushed.profile.samples.values.tolist() == [7]


def test_other_kinds_are_named_by_their_period_or_else_by_themselves() -> None:
    (by_period,) = decoded(request_of(kind=("wall", "nanoseconds")))
    assert types_of(by_period).startswith("cpu:wall:")
    (by_itself,) = decoded(request_of(kind=("wall", "nanoseconds"), period_type=("", "")))
    assert types_of(by_itself) == "wall:wall:nanoseconds::"


def test_tables_come_over_with_names_files_addresses_and_build_id() -> None:
    (pushed,) = decoded(request_of())
    profile = pushed.profile
    profile.check()
    assert [profile.strings[ref] for ref in profile.functions.names.tolist()] == [b"leaf", b"root"]
    assert profile.samples.location_ids.tolist() == [1, 2]
    assert profile.strings[profile.mappings.build_ids[0]] == b"abc123"
    assert profile.duration_ns == 10 * 10**9
    assert parse_profile(pushed.pprof) == profile


def test_a_sample_without_values_counts_its_timestamps() -> None:
    request = request_of(values=[()])
    only_profile(request).samples[0].timestamps_unix_nano.extend([1, 2, 3])
    (pushed,) = decoded(request)
    assert pushed.profile.samples.values.tolist() == [3 * 10**7]


def test_samples_go_to_the_service_they_name_with_labels_and_span() -> None:
    request = request_of(attributes={"service.name": "shop"}, values=[(1,), (2,)])
    second = only_profile(request).samples[1]
    second.attribute_indices.extend([1, 2])
    second.link_index = 1
    shop, own = decoded(request)
    assert (dict(shop.labels)["service_name"], dict(own.labels)["service_name"]) == ("shop", "own")
    strings, samples = own.profile.strings, own.profile.samples
    labels = zip(samples.label_keys.tolist(), samples.label_strings.tolist(), strict=True)
    assert {strings[key]: strings[value] for key, value in labels} == {
        b"thread": b"main",
        b"trace_id": bytes(range(16)).hex().encode(),
        b"span_id": bytes(range(8)).hex().encode(),
    }


def test_json_spells_the_same_request_with_ids_in_hexadecimal() -> None:
    request = request_of()
    only_profile(request).samples[0].link_index = 1
    document = json_format.MessageToDict(request)
    document["dictionary"]["linkTable"][1] = {"traceId": bytes(range(16)).hex(), "spanId": bytes(range(8)).hex()}
    body = json_format.json.dumps(document).encode()
    assert decode_otlp(body, is_json=True, limits=PushLimits(), now_ns=NOW_NS).profiles == decoded(request)


def test_a_request_without_samples_is_taken() -> None:
    assert decoded(request_of(values=[])) == ()
    assert decode_otlp(b"", is_json=False, limits=PushLimits(), now_ns=NOW_NS).profiles == ()


def test_a_reference_outside_its_table_is_refused_by_name() -> None:
    request = request_of()
    request.dictionary.stack_table[1].location_indices.append(9)
    with pytest.raises(Refused, match="a stack of the dictionary names location 9, there are 3"):
        decode_otlp(request.SerializeToString(), is_json=False, limits=PushLimits(), now_ns=NOW_NS)
    request = request_of()
    only_profile(request).samples[0].stack_index = -1
    push = decode_otlp(request.SerializeToString(), is_json=False, limits=PushLimits(), now_ns=NOW_NS)
    assert (push.profiles, "names stack -1" in push.refused[0].message) == ((), True)


def test_one_long_stack_named_by_many_samples_is_refused_before_it_costs_memory() -> None:
    request = request_of(values=[(1,)] * 500)
    request.dictionary.stack_table[1].location_indices.extend([1] * 10_000)
    push = decode_otlp(request.SerializeToString(), is_json=False, limits=PushLimits(), now_ns=NOW_NS)
    assert [refused.reason for refused in push.refused] == ["samples_limit"]


@pytest.mark.parametrize("table", ["location_table", "function_table", "mapping_table"])
def test_tables_that_many_profiles_name_again_are_gone_through_so_often_only(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.ingest.otlp.WORK_MAX", 41_000)
    request = request_of()
    for _ in range(1_000):
        getattr(request.dictionary, table).add()
    for _ in range(99):
        request.resource_profiles[0].scope_profiles[0].profiles.add().CopyFrom(only_profile(request))
    push = decode_otlp(request.SerializeToString(), is_json=False, limits=PushLimits(), now_ns=NOW_NS)
    assert (len(push.profiles), len(push.refused)) == (39, 61)
    assert {refused.reason for refused in push.refused} == {"samples_limit"}


def test_one_long_stack_named_by_many_profiles_is_gone_through_so_often_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.ingest.otlp.WORK_MAX", 40_000)
    request = request_of()
    request.dictionary.stack_table[1].location_indices.extend([1] * 10_000)
    for _ in range(9):
        request.resource_profiles[0].scope_profiles[0].profiles.add().CopyFrom(only_profile(request))
    push = decode_otlp(request.SerializeToString(), is_json=False, limits=PushLimits(), now_ns=NOW_NS)
    assert (len(push.profiles), len(push.refused)) == (3, 7)


def test_a_dictionary_has_so_many_frames_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.ingest.otlp_request.FRAMES_MAX", 100)
    request = request_of()
    request.dictionary.stack_table[1].location_indices.extend([1] * 99)
    with pytest.raises(Refused, match="the stacks of the dictionary have 101 frames, the limit is 100"):
        decode_otlp(request.SerializeToString(), is_json=False, limits=PushLimits(), now_ns=NOW_NS)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_a_request_or_are_refused(body: bytes, is_json: bool) -> None:
    with contextlib.suppress(Refused):
        decode_otlp(body, is_json=is_json, limits=PushLimits(), now_ns=NOW_NS)


@given(st.data())
def test_a_damaged_request_is_judged_without_failing(data: st.DataObject) -> None:
    body = bytearray(request_of(values=[(1,), (2,)]).SerializeToString())
    for position in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        body[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Refused):
        decode_otlp(bytes(body), is_json=False, limits=PushLimits(), now_ns=NOW_NS)
