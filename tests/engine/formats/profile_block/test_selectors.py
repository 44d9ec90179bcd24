"""Label selectors: how they are read, what they match, and which are refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.profile_block.model import IndexedSeries
from engine.formats.profile_block.selectors import (
    PATTERN_LENGTH_MAX,
    InvalidSelector,
    Matcher,
    MatchOperator,
    SeriesFilter,
    fits,
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('cpu{a="b"}', [("__name__", "cpu"), ("a", "b")]),
        ("process_cpu{}", [("__name__", "process_cpu")]),
        ("{a='b\\'c'}", [("a", "b'c")]),
        ('{a=`b\\n"`,}', [("a", 'b\\n"')]),
        ('{"service.name"="x"}', [("service.name", "x")]),
        (r'{a="\x41\u00e4\U0001F600\101\a\b\f\r\v\t\n"}', [("a", "A\u00e4\U0001f600A\a\b\f\r\v\t\n")]),
        (r'{a="\xc3\xa4"}', [("a", "\u00e4")]),
    ],
)
def test_values_are_quoted_as_in_go_and_a_name_may_stand_in_front(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(each.name, each.value) for each in parse_selector(text)] == expected


@pytest.mark.parametrize(
    "text",
    [r'{a="\xff"}', r'{a="\777"}', r'{a="\U00110000"}', r'{a="\u12"}', "{a='b}", "cpu", '{a=~"x)|(y"}', "{a=`b}"],
)
def test_what_only_looks_like_a_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidSelector):
        parse_selector(text)


def series(position: int, **labels: str) -> IndexedSeries:
    pairs = tuple((name.encode(), value.encode()) for name, value in labels.items())
    return IndexedSeries(position, pairs, 0, 0, position)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("{}", [0, 1, 2]),
        ('{a=""}', [1, 2]),
        ('{a!="b"}', [1, 2]),
        ('{a=~".*"}', [0, 1, 2]),
        ('{a=~".+"}', [0]),
        ('{a!~"b"}', [1, 2]),
        ('{a!~".*"}', []),
        ('{a=~"b|"}', [0, 1, 2]),
        ('{a="b", c="d"}', []),
        ('{c="d\\ne"}', [2]),
        ('{c=~"d.e"}', [2]),
    ],
)
def test_in_a_series_a_missing_label_is_an_empty_one(selector: str, expected: list[int]) -> None:
    entries = [series(0, a="b"), series(1, a=""), series(2, c="d\ne")]
    found = SeriesFilter(parse_selector(selector))
    assert [entry.position for entry in found.matching(entries)] == expected
    assert [entry.position for entry in found.matching(entries)] == expected, "the second time from what it knows"


@pytest.mark.parametrize(
    ("selector", "fitting"),
    [
        ('{a="b"}', {"b"}),
        ('{a!="b"}', {"", "c"}),
        ('{a=""}', {""}),
        ('{a=~"b|"}', {"", "b"}),
        ('{a!~"b"}', {"", "c"}),
    ],
)
def test_a_single_value_fits_or_not(selector: str, fitting: set[str]) -> None:
    [condition] = parse_selector(selector)
    assert {value for value in ("", "b", "c") if fits(condition, value)} == fitting


def test_the_refusal_names_the_place() -> None:
    with pytest.raises(InvalidSelector, match="expected a value in quotes at character 3"):
        parse_selector("{a=b}")
    with pytest.raises(InvalidSelector, match="not an operator"):
        matcher("a", "==", "b")


NAMES = st.from_regex(r"[a-z_][a-z0-9_.]{0,5}", fullmatch=True)
MATCHERS = st.builds(
    Matcher, NAMES, st.sampled_from([MatchOperator.EQUAL, MatchOperator.NOT_EQUAL]), st.text(max_size=9)
)


@pytest.mark.slow
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


@pytest.mark.row("profile-api-56")
@pytest.mark.parametrize(
    "name", ["service.name", "app-version", "世界", "123label", 'a"b', "a\nb", "foo123", "__internal__"]
)
def test_a_printed_condition_parses_to_itself(name: str) -> None:
    condition = Matcher(name, MatchOperator.EQUAL, 'a "value"\\\n')
    assert parse_selector(f"{{{condition}}}") == (condition,)
    assert str(condition).startswith('"') == (name not in ("foo123", "__internal__"))
