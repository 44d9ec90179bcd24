"""What the last part of an application's name makes of a text push (format sheet, section 3.4)."""

from __future__ import annotations

import pytest

from engine.formats.pprof.pprof_model import Profile
from engine.ingest.application_names import parse_application_name
from engine.ingest.model import Refused
from engine.ingest.text_profiles import TextProfile, text_profile
from engine.ingest.text_stacks import parse_folded


def pushed(name: str, folded: bytes, rate: int = 100) -> TextProfile:
    found = text_profile(parse_application_name(name), parse_folded(folded), spy="test", rate=rate, time_ns=7)
    assert found is not None
    return found


def types_of(profile: Profile) -> tuple[str, ...]:
    pairs = [*profile.sample_types, profile.period_type]
    return tuple(profile.strings[ref].decode() for pair in pairs for ref in pair)


def test_a_name_without_a_dot_is_cpu_and_its_counts_are_periods() -> None:
    labels, profile = pushed("app", b"foo;bar 100\nfoo;baz 200")
    assert types_of(profile) == ("cpu", "nanoseconds", "cpu", "nanoseconds")
    assert profile.samples.values.tolist() == [10**9, 2 * 10**9]
    assert (profile.period, profile.time_ns) == (10**7, 7)
    assert dict(labels)["service_name"] == "app"
    assert dict(labels)["__name__"] == "process_cpu"


def test_a_count_of_bytes_is_not_scaled_and_has_no_period() -> None:
    labels, profile = pushed("app.alloc_space{a=b}", b"x 7")
    assert types_of(profile) == ("alloc_space", "bytes", "", "")
    assert profile.samples.values.tolist() == [7]
    assert dict(labels)["__name__"] == "memory"
    assert dict(labels)["a"] == "b"


def test_rate_zero_leaves_samples() -> None:
    _, profile = pushed("app.cpu", b"x 7", rate=0)
    assert types_of(profile) == ("samples", "count", "", "")
    assert profile.samples.values.tolist() == [7]


@pytest.mark.row("profile-api-10")
def test_the_service_name_is_the_application_by_default() -> None:
    assert ("service_name", "testapp") in pushed("testapp", b"x 1").labels


@pytest.mark.row("profile-api-11")
def test_a_given_service_name_is_kept_and_the_application_is_app_name() -> None:
    labels = dict(pushed("testapp{service_name=custom-service}", b"x 1").labels)
    assert (labels["service_name"], labels["app_name"]) == ("custom-service", "testapp")
    labels = dict(pushed("testapp{service_name=custom-service,app_name=mine}", b"x 1").labels)
    assert labels["app_name"] == "mine"


def test_private_tags_go_but_for_the_session() -> None:
    labels = dict(pushed("app{__secret__=1,__session_id__=4}", b"x 1").labels)
    assert "__secret__" not in labels
    assert labels["__session_id__"] == "4"


def test_a_push_of_single_profiles_is_taken_and_not_kept() -> None:
    application = parse_application_name("app{profile_id=1}")
    assert text_profile(application, {(b"x",): 1}, spy="test", rate=100, time_ns=7) is None


@pytest.mark.parametrize("name", ["demo.app", "a.b.c", ".cpu"])
def test_an_unknown_type_or_a_type_without_application_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        pushed(name, b"x 1")


def test_a_scaled_count_that_leaves_63_bits_is_refused() -> None:
    with pytest.raises(Refused, match="63 bits"):
        pushed("app", b"x 9223372036854775807")
