"""Labels of pushed series: the sheet's rows, our rule for odd ones, and limits that name the label."""

from __future__ import annotations

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from engine.ingest.labels import check_labels, series_hash
from engine.ingest.model import PushLimits, Refused

LIMITS = PushLimits(labels_max=4, label_name_bytes_max=16, label_value_bytes_max=16)
CPU = ("__name__", "process_cpu")


def checked(*labels: tuple[str, str], limits: PushLimits = LIMITS) -> dict[str, str]:
    return dict(check_labels(labels, limits).labels)


def test_a_series_without_a_service_gets_the_unknown_one() -> None:
    assert checked(CPU) == {"__name__": "process_cpu", "service_name": "unknown_service"}
    assert checked(CPU, ("service_name", ""))["service_name"] == "unknown_service"


def test_labels_come_out_sorted() -> None:
    labels = check_labels([("service_name", "web"), ("a.b", "1"), CPU], LIMITS).labels
    assert [name for name, _ in labels] == ["__name__", "a.b", "service_name"]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [((), "missing_labels"), ((("service_name", "web"),), "invalid_labels"), ((("__name__", ""),), "invalid_labels")],
)
def test_a_series_without_what_it_measured_is_refused(labels: tuple[tuple[str, str], ...], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        check_labels(labels, LIMITS)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("odd", "note"),
    [
        (("", "x"), "without a name"),
        (("region", "us"), "given twice; the first value stays"),
        (("bad\ud800", "x"), "not valid text was replaced"),
    ],
)
def test_an_odd_label_is_noted_and_never_drops_the_profile(odd: tuple[str, str], note: str) -> None:
    found = check_labels([CPU, ("region", "eu"), odd], LIMITS)
    assert dict(found.labels)["region"] == "eu"
    assert note in found.notes[0]


def test_an_equal_twin_is_joined_without_a_word() -> None:
    assert check_labels([CPU, CPU], LIMITS).notes == ()


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        (("n" * 17, "x"), "label_name_too_long"),
        (("größe" * 4, "x"), "label_name_too_long"),
        (("n", "v" * 17), "label_value_too_long"),
    ],
)
def test_what_is_too_long_is_refused_by_name(label: tuple[str, str], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        checked(CPU, label)
    assert (refused.value.reason, refused.value.label) == (reason, label[0])


def test_labels_are_counted_with_name_and_service() -> None:
    checked(CPU, ("a", "1"), ("b", "1"))
    with pytest.raises(Refused, match="5 labels, the limit is 4"):
        checked(CPU, ("a", "1"), ("b", "1"), ("c", "1"))


@pytest.mark.row("profile-api-31")
def test_session_ids_are_removed_or_limited_in_number() -> None:
    session = ("__session_id__", (4).to_bytes(8, "little").hex())
    assert "__session_id__" not in checked(CPU, session)
    assert checked(CPU, session, limits=PushLimits(sessions_max=3))["__session_id__"] == (1).to_bytes(8, "little").hex()
    assert "__session_id__" not in checked(CPU, ("__session_id__", "four"), limits=PushLimits(sessions_max=3))


@pytest.mark.row("profile-api-32")
def test_go_delta_profiles_have_the_plain_metric_name() -> None:
    found = checked(("__name__", "godeltaprof_memory"), limits=PushLimits())
    assert (found["__name__"], found["__delta__"], found["__name_replaced__"]) == (
        "memory",
        "false",
        "godeltaprof_memory",
    )


def test_wall_profiles_of_cpu_samples_become_cpu_profiles() -> None:
    found = checked(("__name__", "wall"), ("__type__", "cpu"), limits=PushLimits())
    assert (found["__name__"], found["__name_replaced__"]) == ("process_cpu", "wall")


@given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), max_size=5))
def test_any_labels_are_checked_or_refused_and_checking_again_changes_nothing(labels: list[tuple[str, str]]) -> None:
    limits = PushLimits()
    found = check_labels([*labels, ("__name__", "cpu")], limits)
    assert check_labels(found.labels, limits) == type(found)(found.labels)


def test_the_fingerprint_is_over_names_and_values_in_order() -> None:
    assert series_hash((("a", "1"), ("b", "2"))) == xxhash.xxh64_intdigest(b"a\xff1\xffb\xff2\xff")
