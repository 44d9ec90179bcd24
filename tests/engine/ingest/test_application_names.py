"""The name grammar of /ingest, by the rows of the format sheet's known answers and its section 3.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ingest.application_names import parse_application_name
from engine.ingest.model import Refused


@pytest.mark.parametrize(
    ("text", "name", "tags"),
    [
        pytest.param("foo", "foo", {}, id="row 1", marks=pytest.mark.row("profile-api-1")),
        pytest.param(
            "foo{bar=1,baz=2}", "foo", {"bar": "1", "baz": "2"}, id="row 2", marks=pytest.mark.row("profile-api-2")
        ),
        pytest.param(
            " foo { bar = 1 , baz = 2 } ",
            "foo",
            {"bar": "1", "baz": "2"},
            id="row 3",
            marks=pytest.mark.row("profile-api-3"),
        ),
        pytest.param("a{b=1}c=2,", "a", {"b": "1", "c": "2"}, id="reading goes on after a value's brace"),
        pytest.param("a{b}c=2,", "a", {}, id="nothing after the brace of a key without value"),
        pytest.param("a{b=1,c=2", "a", {"b": "1"}, id="an unfinished pair is lost"),
        pytest.param("a{b=x=y{z}", "a", {"b": "x=y{z"}, id="a value holds = and {"),
        pytest.param("a{__name__=other}", "other", {}, id="__name__ overrides the name"),
        pytest.param("a{b=}", "a", {"b": ""}, id="an empty value"),
    ],
)
def test_a_name_is_parsed_as_in_the_reference(text: str, name: str, tags: dict[str, str]) -> None:
    parsed = parse_application_name(text)
    assert (parsed.name, parsed.tags) == (name, tags)


@pytest.mark.row("profile-api-4")
@pytest.mark.parametrize(("text", "normalised"), [("foo{baz=1,bar=2}", "foo{bar=2,baz=1}"), ("foo", "foo{}")])
def test_a_normalised_name_has_sorted_tags(text: str, normalised: str) -> None:
    assert parse_application_name(text).normalised() == normalised


@pytest.mark.parametrize("text", ["", "{a=1}", "größe", "a b", "app{bad-key=1}", "app{=1}"])
def test_other_characters_are_refused_with_the_prefix_that_senders_know(text: str) -> None:
    with pytest.raises(Refused, match=r"^name:") as refused:
        parse_application_name(text)
    assert refused.value.reason == "bad_name"


@given(st.text(alphabet="ab{}=,. _é", max_size=30))
def test_any_text_is_a_name_or_is_refused(text: str) -> None:
    try:
        parsed = parse_application_name(text)
    except Refused:
        return
    assert parse_application_name(parsed.normalised()) == parsed or any("," in v or "}" in v for v in parsed.tags)
