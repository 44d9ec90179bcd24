"""Speedscope files: the format sheet's rows 22 to 24, our three corrections, and damaged files."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ingest.model import Refused
from engine.ingest.speedscope import SCHEMA_URL, parse_speedscope

Event = tuple[str, int, int]
A, B, C, D = range(4)


def file_of(*profiles: dict[str, Any], frames: str = "abcd") -> bytes:
    shared = {"frames": [{"name": name} for name in frames]}
    return json.dumps({"$schema": SCHEMA_URL, "shared": shared, "profiles": profiles}).encode()


def evented(*events: Event, unit: str = "none", name: str = "simple.txt", start: int = 0) -> dict[str, Any]:
    listed = [{"type": kind, "frame": frame, "at": at} for kind, frame, at in events]
    return {"type": "evented", "name": name, "unit": unit, "startValue": start, "endValue": 14, "events": listed}


def sampled(samples: list[list[int]], weights: list[float], unit: str = "seconds", name: str = "one") -> dict[str, Any]:
    return {"type": "sampled", "name": name, "unit": unit, "startValue": 0, "samples": samples, "weights": weights}


SIMPLE = evented(
    ("O", A, 0), ("O", B, 0), ("O", C, 0), ("C", C, 5), ("O", D, 5), ("C", D, 9), ("C", B, 14), ("C", A, 14)
)


@pytest.mark.row("profile-api-22")
def test_an_evented_profile_without_a_unit_is_converted() -> None:
    (profile,) = parse_speedscope(file_of(SIMPLE))
    assert profile.stacks == {(b"a", b"b"): 500, (b"a", b"b", b"c"): 500, (b"a", b"b", b"d"): 400}
    assert (profile.name, profile.rate) == ("simple.txt", 10_000)


@pytest.mark.row("profile-api-23")
def test_two_sampled_profiles_in_seconds_are_converted_separately() -> None:
    stacks = [[A, B, C]] * 2 + [[A, B, D], [A, B, C], [A, B]]
    first, second = parse_speedscope(
        file_of(sampled(stacks, [1, 1, 4, 3, 5]), sampled(stacks, [1, 1, 4, 3, 5], name="two"))
    )
    assert (first.name, second.name) == ("one", "two")
    assert first.stacks == second.stacks
    assert first.stacks == {(b"a", b"b"): 500, (b"a", b"b", b"c"): 500, (b"a", b"b", b"d"): 400}
    assert first.rate == 100


@pytest.mark.row("profile-api-24")
def test_equal_profiles_are_merged() -> None:
    (profile,) = parse_speedscope(file_of(SIMPLE, SIMPLE, SIMPLE))
    assert profile.stacks == {(b"a", b"b"): 1500, (b"a", b"b", b"c"): 1500, (b"a", b"b", b"d"): 1200}


@pytest.mark.parametrize(
    ("unit", "nanoseconds"),
    [("seconds", 10**9), ("milliseconds", 10**6), ("microseconds", 1000), ("nanoseconds", 1), ("none", 10**7)],
)
def test_one_of_every_unit_is_its_time(unit: str, nanoseconds: int) -> None:
    (profile,) = parse_speedscope(file_of(sampled([[A]], [1], unit=unit)))
    assert profile.stacks[(b"a",)] * 10**9 // profile.rate == nanoseconds


def test_bytes_are_counted_one_for_one_at_no_rate() -> None:
    (profile,) = parse_speedscope(file_of(sampled([[A]], [7.9], unit="bytes")))
    assert (profile.stacks, profile.rate) == ({(b"a",): 7}, 0)


def test_time_before_a_frame_opens_is_scaled_as_time_before_it_closes() -> None:
    events = [("O", A, 0), ("O", B, 3), ("C", B, 3), ("C", A, 3)]
    (profile,) = parse_speedscope(file_of(evented(*events)))
    assert profile.stacks == {(b"a",): 300}


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        (sampled([[A]], [1, 2]), "1 samples and 2 weights"),
        (sampled([[A]], [-1]), r"weights\[0\] is negative"),
        (sampled([[9]], [1]), r"samples\[0\]: 9 is not one of the 4 frames"),
        (sampled([[A]], [1], unit="fortnights"), "unknown unit 'fortnights'"),
        (sampled([[A], [A]], [float(1 << 62), float(1 << 62)]), "more than 63 bits"),
        (evented(("O", A, 0), ("C", B, 1)), r"events\[1\] closes a frame"),
        (evented(("X", A, 0)), r"events\[0\] is neither"),
        ({"type": "heatmap"}, "neither 'sampled' nor 'evented'"),
    ],
)
def test_a_damaged_profile_is_refused_with_its_place(entry: dict[str, Any], place: str) -> None:
    with pytest.raises(Refused, match=place):
        parse_speedscope(file_of(entry))


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 100_000, b'{"$schema": "other"}', b"NaN", b"\xff"])
def test_what_is_no_speedscope_file_is_refused(data: bytes) -> None:
    with pytest.raises(Refused, match="speedscope: "):
        parse_speedscope(data)


@pytest.mark.slow
def test_a_million_open_frames_are_refused_before_they_cost_memory() -> None:
    with pytest.raises(Refused, match="too deep"):
        parse_speedscope(file_of(evented(*[("O", A, at) for at in range(20_000)])))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.sampled_from(["O", "C", "sampled", "evented", "none"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "unit", "samples", "weights", "events", "at", "frame", "startValue"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=3))
def test_any_profiles_are_stacks_or_are_refused(profiles: list[Any]) -> None:
    data = json.dumps({"$schema": SCHEMA_URL, "shared": {"frames": [{"name": "a"}]}, "profiles": profiles}).encode()
    with contextlib.suppress(Refused):
        assert all(count >= 0 for profile in parse_speedscope(data) for count in profile.stacks.values())
