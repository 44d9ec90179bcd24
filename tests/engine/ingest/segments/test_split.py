"""Splitting a profile by sample labels, and the labels of the series that come out."""

from __future__ import annotations

import pytest

from engine.core.errors import BadProfile
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_model import Profile
from engine.ingest.segments.normalise import normalise
from engine.ingest.segments.split import LabelGroup, external_labels, fingerprint, series_labels, split, stored_order

LEAF, ROOT = Frame("leaf", "app.py", 10, 11), Frame("root", "app.py", 1, 2)
CPU = ("cpu", "nanoseconds")
PUSH = {"__name__": "process_cpu", "service_name": "shop"}
SPAN, OTHER_SPAN = "0100000000000000", "00000000000000ff"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def profile_of(*samples: tuple[list[Frame], int, dict[str, str]]) -> Profile:
    builder = ProfileBuilder([CPU], period_type=CPU, period=1)
    for stack, value, labels in samples:
        builder.add(stack, [value], labels.items())
    return normalise(builder.profile(time_ns=1, duration_ns=1), received_at_ns=1)


def split_by_labels(profile: Profile, labels: dict[str, str] = PUSH) -> dict[frozenset[tuple[str, str]], LabelGroup]:
    """The groups by the labels that samples added."""
    return {frozenset(set(group.labels) - set(labels.items())): group for group in split(profile, labels.items())}


def values(group: LabelGroup) -> list[int]:
    return sorted(group.profile.samples.values.tolist())


def test_each_set_of_sample_labels_becomes_a_group() -> None:
    groups = split_by_labels(
        profile_of(
            ([LEAF], 1, {}), ([LEAF], 2, {"thread": "a"}), ([ROOT], 3, {"thread": "a"}), ([LEAF], 4, {"thread": "b"})
        )
    )
    assert {key: values(group) for key, group in groups.items()} == {
        frozenset(): [1],
        frozenset({("thread", "a")}): [2, 3],
        frozenset({("thread", "b")}): [4],
    }


def test_a_group_holds_only_what_its_samples_reach() -> None:
    groups = split_by_labels(profile_of(([LEAF], 1, {}), ([ROOT], 3, {"thread": "a"})))
    assert len(groups[frozenset()].profile.functions) == 1
    assert len(groups[frozenset()].profile.samples.label_keys) == 0


def test_span_and_trace_do_not_split_but_stay_with_the_samples() -> None:
    (group,) = split(
        profile_of(
            ([LEAF], 1, {"span_id": SPAN, "trace_id": TRACE}), ([LEAF], 2, {"profile_id": OTHER_SPAN}), ([ROOT], 3, {})
        ),
        PUSH.items(),
    )
    found = dict(
        zip(group.profile.samples.values.tolist(), zip(group.span_ids or [], group.trace_ids, strict=True), strict=True)
    )
    assert found == {1: (1, bytes.fromhex(TRACE)), 2: (0xFF << 56, None), 3: (0, None)}


def test_a_profile_without_span_labels_knows_no_spans() -> None:
    (group,) = split(profile_of(([LEAF], 1, {"thread": "a"})), PUSH.items())
    assert group.span_ids is None


@pytest.mark.parametrize("value", ["xyz", "01", SPAN + "00", "zz00000000000000", "01 0000000000000"])
def test_a_span_that_is_no_span_counts_as_absent(value: str) -> None:
    (group,) = split(profile_of(([LEAF], 1, {"span_id": value, "trace_id": value})), PUSH.items())
    assert group.span_ids == [0]
    assert group.trace_ids == [None]


def test_a_label_of_the_push_wins_over_a_sample_label_and_the_groups_join() -> None:
    push = {**PUSH, "thread": "main"}
    (group,) = split(
        profile_of(([LEAF], 1, {}), ([LEAF], 2, {"thread": "a"}), ([ROOT], 4, {"thread": "b"})), push.items()
    )
    assert dict(group.labels)["thread"] == "main"
    assert values(group) == [3, 4]


def test_joined_groups_keep_samples_of_different_spans_apart() -> None:
    push = {**PUSH, "thread": "main"}
    profile = profile_of(
        ([LEAF], 1, {"span_id": SPAN}),
        ([LEAF], 2, {"span_id": SPAN, "thread": "a"}),
        ([LEAF], 4, {"span_id": OTHER_SPAN}),
    )
    (group,) = split(profile, push.items())
    assert values(group) == [3, 4]


def test_a_profile_without_samples_has_no_groups() -> None:
    assert split(profile_of(([LEAF], 0, {})), PUSH.items()) == []


def test_push_labels_lose_hints_empty_values_and_repeats() -> None:
    pushed = [("b", "2"), ("__delta__", "false"), ("__order__", "x"), ("a", ""), ("b", "3"), ("service_name", "shop")]
    assert external_labels(pushed) == (("b", "2"), ("service_name", "shop"))


def test_a_push_without_a_service_goes_to_the_unspecified_one() -> None:
    assert dict(external_labels([("__name__", "process_cpu")]))["service_name"] == "unspecified"


def test_labels_that_are_no_text_are_refused() -> None:
    with pytest.raises(BadProfile, match="not valid text"):
        external_labels([("a", "\ud800")])


def test_series_labels_include_the_type_and_are_in_stored_order() -> None:
    (group,) = split(profile_of(([LEAF], 1, {"thread": "a", "Zone": "z"})), PUSH.items())
    assert series_labels(group.labels, group.profile, 0) == (
        ("__profile_type__", "process_cpu:cpu:nanoseconds:cpu:nanoseconds"),
        ("__service_name__", "shop"),
        ("Zone", "z"),
        ("__name__", "process_cpu"),
        ("__period_type__", "cpu"),
        ("__period_unit__", "nanoseconds"),
        ("__type__", "cpu"),
        ("__unit__", "nanoseconds"),
        ("service_name", "shop"),
        ("thread", "a"),
    )


def test_labels_a_push_claims_about_its_type_are_overridden() -> None:
    (group,) = split(profile_of(([LEAF], 1, {})), {**PUSH, "__type__": "lies", "__profile_type__": "lies"}.items())
    labels = dict(series_labels(group.labels, group.profile, 0))
    assert labels["__type__"] == "cpu"
    assert labels["__profile_type__"] == "process_cpu:cpu:nanoseconds:cpu:nanoseconds"


def test_a_fingerprint_has_the_known_value_of_a_stored_series() -> None:
    labels = {
        "__name__": "process_cpu",
        "__period_type__": "cpu",
        "__period_unit__": "nanoseconds",
        "__profile_type__": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "__service_name__": "test-app",
        "__type__": "cpu",
        "__unit__": "nanoseconds",
        "foo": "bar",
        "function": "fast",
        "instance": '"1"',
        "pyroscope_spy": "gospy",
        "service_name": "test-app",
    }
    stored = [(name.encode(), value.encode()) for name, value in stored_order(labels)]
    assert fingerprint(stored) == 18444067712928455933
