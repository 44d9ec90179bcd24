"""The JSON form of polls: what goes through unchanged, and what is refused by which name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lanes.profiles.jobs import ProfileMergeResult, ResultBlock
from engine.lanes.profiles.results import read_profile_result
from engine.protocol import wire
from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import COUNT_MAX, truncate_text
from engine.protocol.messages import (
    Assignment,
    FailureReason,
    JobUpdate,
    LeaseGrant,
    PollRequest,
    PollResponse,
    Progress,
    UpdateStatus,
)

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")


def text(length_max: int, length_min: int = 0) -> st.SearchStrategy[str]:
    return st.text(characters, min_size=length_min, max_size=min(length_max, 30))


counts = st.integers(0, COUNT_MAX)
seconds = st.floats(0, 86_400)
json_objects = st.dictionaries(text(5), st.none() | st.booleans() | st.integers() | text(5), max_size=3)
progresses = st.builds(Progress, done=counts, total=counts, phase=text(wire.NAME_MAX))
reasons = st.builds(
    FailureReason,
    error_class=text(wire.NAME_MAX, 1),
    message=text(wire.TEXT_MAX),
    object=text(wire.KEY_MAX),
    section=text(wire.NAME_MAX),
    offset=st.integers(-1, COUNT_MAX),
    build=text(wire.NAME_MAX),
)
updates = st.builds(
    JobUpdate,
    job=text(wire.JOB_NAME_MAX, 1),
    token=text(wire.TOKEN_MAX, 1),
    status=st.sampled_from(UpdateStatus),
    progress=st.none() | progresses,
    result=st.none() | json_objects,
    reason=st.none() | reasons,
)
requests = st.builds(
    PollRequest,
    worker=text(wire.NAME_MAX, 1),
    build=text(wire.NAME_MAX),
    capacity=st.integers(0, wire.CAPACITY_MAX),
    updates=st.lists(updates, max_size=4, unique_by=lambda update: (update.job, update.token)).map(tuple),
    last_serial=st.integers(0, COUNT_MAX),
)
names, tokens = text(wire.JOB_NAME_MAX, 1), text(wire.TOKEN_MAX, 1)
responses = st.builds(
    PollResponse,
    leases=st.lists(st.builds(LeaseGrant, job=names, token=tokens, expires_in=seconds), max_size=3).map(tuple),
    assignments=st.lists(
        st.builds(Assignment, job=names, token=tokens, spec=json_objects, expires_in=seconds), max_size=3
    ).map(tuple),
    serial=st.integers(0, COUNT_MAX),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)


@given(requests)
def test_a_request_survives_the_wire(request: PollRequest) -> None:
    assert wire.request_from_wire(json.loads(json.dumps(wire.request_to_wire(request)))) == request


@given(responses)
def test_a_response_survives_the_wire(response: PollResponse) -> None:
    assert wire.response_from_wire(json.loads(json.dumps(wire.response_to_wire(response)))) == response


@given(anything)
def test_anything_else_is_refused_with_a_typed_error(data: Any) -> None:
    for read in (wire.request_from_wire, wire.response_from_wire, read_profile_result):
        with pytest.raises(InvalidMessage):
            read(data)


REQUEST = {"worker": "w", "build": "b", "capacity": 1, "updates": []}
UPDATE = {"job": "j", "token": "t", "status": "success"}
REASON = {"error_class": "E", "message": "m"}


def _request(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (REQUEST | changes).items() if value is not ...}


def _update(**changes: Any) -> dict[str, Any]:
    return _request(updates=[{name: value for name, value in (UPDATE | changes).items() if value is not ...}])


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (_request(worker=""), "request.worker"),
        (_request(worker=...), "request.worker"),
        (_request(worker=7), "request.worker"),
        (_request(worker="a\0"), "request.worker"),
        (_request(worker="\ud800"), "request.worker"),
        (_request(worker="w" * 101), "request.worker"),
        (_request(build=None), "request.build"),
        (_request(capacity=-1), "request.capacity"),
        (_request(capacity=wire.CAPACITY_MAX + 1), "request.capacity"),
        (_request(capacity=True), "request.capacity"),
        (_request(capacity=1.0), "request.capacity"),
        (_request(updates={}), "request.updates"),
        (_request(updates=[UPDATE] * 2), "request.updates"),
        (_request(updates=[{}] * (wire.UPDATES_MAX + 1)), "request.updates"),
        (_request(updates=[7]), "request.updates[0]"),
        (_update(status="lost"), "request.updates[0].status"),
        (_update(status=["success"]), "request.updates[0].status"),
        (_update(token=""), "request.updates[0].token"),
        (_update(job=...), "request.updates[0].job"),
        (_update(result=[]), "request.updates[0].result"),
        (_update(progress={"done": 1}), "request.updates[0].progress.total"),
        (_update(progress={"done": 1 << 63, "total": 1}), "request.updates[0].progress.done"),
        (_update(reason=REASON | {"offset": -2}), "request.updates[0].reason.offset"),
        (_update(reason=REASON | {"message": "m" * (wire.TEXT_MAX + 1)}), "request.updates[0].reason.message"),
    ],
)
def test_a_refusal_names_the_field(data: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        wire.request_from_wire(data)
    assert caught.value.field == field


def test_unknown_fields_are_ignored() -> None:
    assert wire.request_from_wire(_request(mood="good")).worker == "w"


@given(st.text(), st.integers(1, 20))
def test_a_sender_shortens_what_would_be_refused(long: str, length_max: int) -> None:
    short = truncate_text(long, length_max)
    assert len(short) <= length_max
    assert "\0" not in short
    short.encode()


def test_a_long_error_text_arrives_shortened() -> None:
    reason = FailureReason(error_class="E" * 300, message="x" * 9999 + "\0\ud800")
    update = JobUpdate(job="j", token="t", status=UpdateStatus.RELEASED, reason=reason)
    request = PollRequest(worker="w", build="", capacity=0, updates=(update,))
    arrived = wire.request_from_wire(wire.request_to_wire(request)).updates[0].reason
    assert arrived is not None
    assert arrived.message.endswith("…")
    assert len(arrived.message) == wire.TEXT_MAX


RESULT = ProfileMergeResult(
    sources=("01J2VJQPYDC160REPAD2VN88XN",),
    blocks=(ResultBlock(id="i", key="k", size=5, crc32c=6, metadata=b"\x00\xff"),),
    rows_read=1,
    rows_dropped=2,
    bytes_read=3,
)


def test_a_result_survives_the_wire() -> None:
    assert read_profile_result(json.loads(json.dumps(RESULT.to_json()))) == RESULT


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", "tsdb"), ("sources", ["short"]), ("sources", "text"), ("rows_read", -1), ("blocks", [{}])],
)
def test_a_bad_result_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidMessage, match=f"result.{field}"):
        read_profile_result(RESULT.to_json() | {field: value})


@pytest.mark.parametrize("metadata", ["a", "####", "AAAA\n", 7, None])
def test_metadata_that_is_not_base64_is_refused(metadata: Any) -> None:
    data = RESULT.to_json()
    data["blocks"][0]["metadata"] = metadata
    with pytest.raises(InvalidMessage, match="metadata"):
        read_profile_result(data)
