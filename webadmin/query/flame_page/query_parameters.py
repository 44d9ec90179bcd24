"""Parse the query string of the page: time range, filters, and one side or two.

A filter is ``<label> <operator> <value>``, separated by one space; a label that is not an identifier is a JSON string.
Invalid input raises InvalidQuestion or InvalidSelector with the expected form.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from django.http import QueryDict

from engine.formats.profile_block.selectors import InvalidSelector, Matcher, matcher
from engine.query.errors import InvalidQuestion
from engine.query.model import SERVICE_NAME, Question, type_id
from webadmin.base.query_times import parse_time
from webadmin.query.viewers.viewing import Viewing

FILTERS_MAX = 50
TEXT_MAX = 2_000
"""Maximum characters of a filter or of a search text."""
_MOMENT = re.compile(r"now(-\d{1,9}(s|m|h|d|w))?|\d{1,16}")
_FOCUS = re.compile(r"[0-9a-f]{16}")
LEFT, RIGHT = "", "right_"
"""Prefix of the parameters of each side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison, or the only one; ``question`` is None if its range is outside the query window."""

    start_ms: int
    end_ms: int
    question: Question | None


def side_of(asked: QueryDict, viewing: Viewing, side: str = LEFT) -> Side:
    """Return the query of one side for all profile types; the right side defaults to parameters of the left."""
    start_ms, end_ms = (
        _moment_ms(asked.get(side + name) or asked.get(name) or default, viewing.now_ms / 1_000, name)
        for name, default in (("from", "now-1h"), ("until", "now"))
    )
    found = viewing.question(start_ms, end_ms, filters_of(asked, side))
    if found is None:
        return Side(start_ms=start_ms, end_ms=end_ms, question=None)
    return Side(start_ms=found.start_ms, end_ms=found.end_ms, question=found)


def typed_side(asked: QueryDict, viewing: Viewing, side: str = LEFT) -> Side:
    """Return the query of one side for the requested profile type."""
    kind = profile_type(asked)
    found = side_of(asked, viewing, side)
    return replace(found, question=found.question and found.question.of_type(kind))


def profile_type(asked: QueryDict) -> str:
    """Return the id of the requested profile type."""
    if not asked.get("type"):
        raise InvalidQuestion("no profile type is chosen")
    return type_id(str(asked["type"]))


def filters_of(asked: QueryDict, side: str = LEFT) -> tuple[Matcher, ...]:
    """Return the matchers of a side, that of the service first."""
    texts = asked.getlist(f"{side}filter")
    if len(texts) > FILTERS_MAX:
        raise InvalidQuestion(f"there are {len(texts)} filters; {FILTERS_MAX} are allowed")
    service = asked.get("service", "")
    own = (matcher(SERVICE_NAME, "=", service),) if service else ()
    return (*own, *(parsed_filter(text) for text in texts))


def parsed_filter(text: str) -> Matcher:
    """Return the matcher of a filter."""
    if len(text) > TEXT_MAX:
        raise InvalidSelector(-1, f"a filter is longer than {TEXT_MAX} characters")
    if text.startswith('"'):
        try:
            name, end = json.JSONDecoder().raw_decode(text)
        except ValueError:
            raise InvalidSelector(0, "the label of a filter begins with a quote and does not end with one") from None
        rest = text[end:].removeprefix(" ")
    else:
        name, _, rest = text.partition(" ")
    operator, _, value = rest.partition(" ")
    return matcher(name, operator, value)


def compared(asked: QueryDict) -> bool:
    """Return whether a comparison of two sides is requested."""
    return asked.get("compare") == "diff"


def focus_of(asked: QueryDict) -> int | None:
    """Return the id of the location that the graph is focused on."""
    text = asked.get("focus", "")
    if text and not _FOCUS.fullmatch(text):
        raise InvalidQuestion("focus is no place in a flame graph: it has 16 hexadecimal digits")
    return int(text, 16) if text else None


def search_of(asked: QueryDict) -> str:
    """Return the search text for names."""
    text = asked.get("search", "").strip()
    if len(text) > TEXT_MAX:
        raise InvalidQuestion(f"the text to search for is longer than {TEXT_MAX} characters")
    return text


def _moment_ms(text: str, now_s: float, name: str) -> int:
    if not _MOMENT.fullmatch(text.strip()):
        raise InvalidQuestion(f"{name} is no time: {text[:50]!r}; write now, now-6h or unix milliseconds")
    return int(parse_time(text.strip(), now_s) * 1_000)
