"""Checks of one pushed profile, against section 2.3 of the format sheet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from engine.formats.pprof.pprof import parse_profile
from engine.formats.pprof.pprof_model import Profile
from engine.ingest.model import PushLimits, Refused
from engine.ingest.profile_checks import check_profile
from tests.engine.ingest.senders import NOW_NS, make_pprof

LIMITS = PushLimits(samples_max=2, sample_labels_max=2, stack_frames_max=3, symbol_bytes_max=12)


def parsed(data: bytes) -> Profile:
    return parse_profile(data)


def stack_names(profile: Profile, sample: int) -> list[bytes]:
    bounds = profile.samples.location_starts
    names = []
    for location_id in profile.samples.location_ids[bounds[sample] : bounds[sample + 1]].tolist():
        line = profile.locations.line_starts[location_id - 1]
        function = int(profile.locations.line_function_ids[line]) - 1
        names.append(profile.strings[profile.functions.names[function]])
    return names


def test_a_good_profile_stays_the_very_same_object() -> None:
    profile = parsed(make_pprof())
    assert check_profile(profile, LIMITS, now_ns=NOW_NS) == (profile, ())
    assert check_profile(profile, LIMITS, now_ns=NOW_NS)[0] is profile


@pytest.mark.parametrize("age_s", [3600, 7200, -600, -9000])
def test_a_time_outside_the_window_both_ends_excluded_is_refused(age_s: float) -> None:
    with pytest.raises(Refused, match="is the sender's clock right") as refused:
        check_profile(parsed(make_pprof(age_s=age_s)), LIMITS, now_ns=NOW_NS)
    assert refused.value.reason == "not_in_ingestion_window"


@pytest.mark.parametrize("age_s", [3599, -599])
def test_a_time_just_inside_the_window_is_taken(age_s: float) -> None:
    check_profile(parsed(make_pprof(age_s=age_s)), LIMITS, now_ns=NOW_NS)


def test_a_profile_without_a_time_or_with_a_negative_one_is_taken() -> None:
    none = replace(parsed(make_pprof()), time_ns=0)
    assert check_profile(none, LIMITS, now_ns=NOW_NS)[0] is none
    negative, notes = check_profile(replace(none, time_ns=-5), LIMITS, now_ns=NOW_NS)
    assert (negative.time_ns, len(notes)) == (0, 1)


def test_too_many_samples_or_sample_labels_are_refused() -> None:
    with pytest.raises(Refused, match="3 samples, the limit is 2"):
        check_profile(parsed(make_pprof(("a",), ("b",), ("c",))), LIMITS, now_ns=NOW_NS)
    labels = (("a", "1"), ("b", "1"), ("c", "1"))
    with pytest.raises(Refused, match="a sample has 3 labels, the limit is 2"):
        check_profile(parsed(make_pprof(("a",), labels=labels)), LIMITS, now_ns=NOW_NS)


def test_a_deep_stack_keeps_the_frames_nearest_the_root() -> None:
    profile = parsed(make_pprof(("leaf", "d", "c", "b", "root"), ("x", "root")))
    cut, notes = check_profile(profile, LIMITS, now_ns=NOW_NS)
    cut.check()
    assert stack_names(cut, 0) == [b"c", b"b", b"root"]
    assert stack_names(cut, 1) == [b"x", b"root"]
    assert notes == ("1 stacks deeper than 3 frames were cut at the leaf",)


def test_a_long_string_keeps_its_end_and_stays_text() -> None:
    cut, notes = check_profile(parsed(make_pprof(("äbcdefghijklm",))), LIMITS, now_ns=NOW_NS)
    assert b"bcdefghijklm" in cut.strings
    cut, _ = check_profile(parsed(make_pprof(("xäbcdefghijk",))), LIMITS, now_ns=NOW_NS)
    assert b"bcdefghijk" not in cut.strings
    assert all(len(string) <= 12 and string.decode() is not None for string in cut.strings)
    assert any("cut to their end" in note for note in notes)


def functions_beyond(one: Profile) -> Profile:
    return replace(one, functions=replace(one.functions, names=one.functions.names + 99))


def mappings_before(one: Profile) -> Profile:
    return replace(one, mappings=replace(one.mappings, build_ids=one.mappings.build_ids - 1))


def dashed(one: Profile) -> Profile:
    return replace(one, strings=[*one.strings, b"a-b"], sample_types=[(len(one.strings), 0)])


BREAKS: list[tuple[str, Callable[[Profile], Profile]]] = [
    ("string 0", lambda one: replace(one, strings=[b"x", *one.strings[1:]])),
    ("string 0", lambda one: replace(one, strings=[])),
    ("a sample or period type names string 99", lambda one: replace(one, sample_types=[(99, 0)])),
    ("a function names string", functions_beyond),
    ("a mapping names string", mappings_before),
    ("the profile names string 99", lambda one: replace(one, comments=[99])),
    ("location id is 0", lambda one: replace(one, locations=replace(one.locations, ids=one.locations.ids * 0))),
    ("function id is 0", lambda one: replace(one, functions=replace(one.functions, ids=one.functions.ids * 0))),
    ("sample 0 has 1 values for 2 sample types", lambda one: replace(one, sample_types=one.sample_types * 2)),
    ("not valid UTF-8", lambda one: replace(one, strings=[*one.strings, b"\xff"])),
    ("has a '-' in its name", dashed),
]


@pytest.mark.row("profile-api-19", "profile-api-20")
@pytest.mark.parametrize(("message", "damage"), BREAKS, ids=[message for message, _ in BREAKS])
def test_a_malformed_profile_is_refused_with_the_reason(message: str, damage: Callable[[Profile], Profile]) -> None:
    with pytest.raises(Refused, match=message) as refused:
        check_profile(damage(parsed(make_pprof())), LIMITS, now_ns=NOW_NS)
    assert refused.value.reason == "malformed_profile"


def test_what_parses_again_is_what_was_checked() -> None:
    profile = parsed(make_pprof(("a", "b"), ("c",)))
    assert np.array_equal(check_profile(profile, LIMITS, now_ns=NOW_NS)[0].samples.values, profile.samples.values)
