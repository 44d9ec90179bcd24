"""Label selectors: how they are read, what they match, and which are refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.profiles.query.errors import InvalidSelector
from engine.profiles.query.selectors import (
    PATTERN_LENGTH_MAX,
    Matcher,
    MatchOperator,
    match_all,
    matcher,
    parse_selector,
    project,
    select_label_sets,
)

WEB = (("service_name", "web"), ("region", "eu-1"))
API = (("service_name", "api"),)
EMPTY = (("service_name", ""),)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("{}", [True, True, True]),
        ("", [True, True, True]),
        ('{service_name="web"}', [True, False, False]),
        ('{service_name=~"w.*|api"}', [True, True, False]),
        ('{service_name=~"we"}', [False, False, False]),
        ('{region=""}', [False, False, False]),
        ('{region=~".*"}', [True, False, False]),
        ('{region!="eu-1"}', [False, True, True]),
        ('{region!~"eu-.*"}', [False, True, True]),
        ('{service_name=""}', [False, False, True]),
        ('{service_name="web", region="eu-1",}', [True, False, False]),
        ('{service_name="web", region!="eu-1"}', [False, False, False]),
    ],
)
def test_a_missing_name_matches_no_positive_and_breaks_no_negative_matcher(selector: str, expected: list[bool]) -> None:
    assert match_all([WEB, API, EMPTY], parse_selector(selector)) == expected


def test_all_conditions_must_hold_in_the_same_set() -> None:
    split = [(("a", "1"),), (("b", "2"),)]
    assert select_label_sets(split, parse_selector('{a="1", b="2"}')) == []
    assert select_label_sets([*split, (("a", "1"), ("b", "2"))], parse_selector('{a="1", b="2"}')) == [
        (("a", "1"), ("b", "2"))
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        'a="b"',
        '{a="b"',
        '{a~"b"}',
        '{a="b"} x',
        "{a=b}",
        '{a="\\x"}',
        "{,}",
        '{a="b" c="d"}',
        '{="b"}',
        '{""="b"}',
        '{a=~"("}',
        '{a=~"(a{1000}){1000}"}',
        '{a=~"' + "x" * (PATTERN_LENGTH_MAX + 1) + '"}',
        "{" + ",".join(['a="b"'] * 51) + "}",
        '{a="' + "x" * 10_000 + '"}',
    ],
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(InvalidSelector):
        parse_selector(text)


def test_the_refusal_names_the_place() -> None:
    with pytest.raises(InvalidSelector, match="expected a value in double quotes at character 3"):
        parse_selector("{a=b}")
    with pytest.raises(InvalidSelector, match="no operator"):
        matcher("a", "==", "b")


NAMES = st.from_regex(r"[a-z_][a-z0-9_.]{0,5}", fullmatch=True)
MATCHERS = st.builds(
    Matcher, NAMES, st.sampled_from([MatchOperator.EQUAL, MatchOperator.NOT_EQUAL]), st.text(max_size=9)
)


@given(st.lists(MATCHERS, max_size=5))
def test_a_selector_reads_as_it_was_written(matchers: list[Matcher]) -> None:
    assert parse_selector("{" + ", ".join(map(str, matchers)) + "}") == tuple(matchers)


@given(st.text(max_size=40))
def test_any_text_is_a_selector_or_a_typed_refusal(text: str) -> None:
    with contextlib.suppress(InvalidSelector):
        assert isinstance(parse_selector(text), tuple)


def test_a_pattern_that_would_take_for_ever_elsewhere_is_quick() -> None:
    assert match_all([(("a", "a" * 5000 + "!"),)], parse_selector('{a=~"(a+)+"}')) == [False]


def test_projections_are_distinct_and_keep_the_stored_order() -> None:
    assert list(project([WEB, API, WEB], ["region", "service_name"])) == [WEB, API]
    assert list(project([WEB, WEB], ["region"])) == [(("region", "eu-1"),)]
    assert list(project([WEB], ["other"])) == []
