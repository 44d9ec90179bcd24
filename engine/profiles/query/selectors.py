"""Label selectors such as ``{service_name="checkout", region!~"eu-.*"}``, and which label sets they match.

A label set matches if every ``=`` and ``=~`` finds its name in it with such a value (a name that is not there never
matches, not even an empty value) and no ``!=`` or ``!~`` is broken by a name that is there. A dataset matches if any of
its sets does. Regular expressions are RE2's, so no pattern can take long, and they match whole values.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from engine.profiles.model import Labels
from engine.profiles.query.errors import InvalidSelector

MATCHERS_MAX = 50
SELECTOR_LENGTH_MAX = 10_000
PATTERN_LENGTH_MAX = 1_000

_SPACE = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_.]*|"(?:[^"\\\n]|\\.)*"')
_OPERATOR = re.compile(r"=~|!~|!=|=")
_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}


class MatchOperator(enum.StrEnum):
    """How a matcher compares."""

    EQUAL = "="
    NOT_EQUAL = "!="
    MATCHES = "=~"
    MATCHES_NOT = "!~"

    @property
    def is_negative(self) -> bool:
        return self in (MatchOperator.NOT_EQUAL, MatchOperator.MATCHES_NOT)

    @property
    def is_pattern(self) -> bool:
        return self in (MatchOperator.MATCHES, MatchOperator.MATCHES_NOT)


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label. Build it with ``matcher``, which checks it."""

    name: str
    operator: MatchOperator
    value: str

    def __str__(self) -> str:
        value = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return f'{self.name}{self.operator}"{value}"'


def matcher(name: str, operator: str, value: str) -> Matcher:
    """Return a matcher. Raises InvalidSelector."""
    if not name:
        raise InvalidSelector(-1, "a matcher has no label name")
    try:
        made = Matcher(name, MatchOperator(operator), value)
    except ValueError:
        raise InvalidSelector(-1, f"{operator!r} is no operator: use =, !=, =~ or !~") from None
    if made.operator.is_pattern:
        _matching_values(made, [""])  # an impossible pattern is refused here and not at its first use
    return made


def parse_selector(text: str) -> tuple[Matcher, ...]:
    """Read a selector; "" and ``{}`` match everything. Raises InvalidSelector naming the place."""
    if len(text) > SELECTOR_LENGTH_MAX:
        raise InvalidSelector(-1, f"the selector is longer than {SELECTOR_LENGTH_MAX} characters")
    if not text.strip():
        return ()
    position = _skip(text, 0, "{")
    found: list[Matcher] = []
    while not text.startswith("}", position):
        if found:
            position = _skip(text, position, ",")
            if text.startswith("}", position):  # a comma may end the list
                break
        name, position = _token(_NAME, text, position, "a label name")
        operator, position = _token(_OPERATOR, text, position, "one of = != =~ !~")
        value, position = _token(_TEXT, text, position, "a value in double quotes")
        found.append(matcher(_plain(name), operator, _plain(value)))
        if len(found) > MATCHERS_MAX:
            raise InvalidSelector(position, f"more than {MATCHERS_MAX} matchers")
    position = _skip(text, position, "}")
    if position != len(text):
        raise InvalidSelector(position, "the selector goes on after its end")
    return tuple(found)


def select_label_sets(label_sets: Sequence[Labels], matchers: Sequence[Matcher]) -> list[Labels]:
    """Return those of a dataset's label sets that match."""
    return [labels for labels, is_match in zip(label_sets, match_all(label_sets, matchers), strict=True) if is_match]


def match_all(label_sets: Sequence[Labels], matchers: Iterable[Matcher]) -> list[bool]:
    """Say for each label set whether it matches; a pattern looks at every distinct value once."""
    verdicts = [True] * len(label_sets)
    for condition in matchers:
        values = {value for labels in label_sets for name, value in labels if name == condition.name}
        fitting = _fitting(condition, sorted(values))
        for place, labels in enumerate(label_sets):
            present = [value for name, value in labels if name == condition.name]
            if condition.operator.is_negative:
                verdicts[place] &= all(value in fitting for value in present)
            else:
                verdicts[place] &= any(value in fitting for value in present)
    return verdicts


def _fitting(condition: Matcher, values: list[str]) -> set[str]:
    """Return the values that do not break the condition."""
    if condition.operator.is_pattern:
        matching = _matching_values(condition, values)
    else:
        matching = {condition.value}
    return set(values) - matching if condition.operator.is_negative else matching


def _matching_values(condition: Matcher, values: list[str]) -> set[str]:
    if len(condition.value) > PATTERN_LENGTH_MAX:
        raise InvalidSelector(-1, f"the pattern for {condition.name} is longer than {PATTERN_LENGTH_MAX} characters")
    try:
        found = pc.match_substring_regex(pa.array(values, pa.string()), pattern=rf"\A(?s:{condition.value})\z")
    except pa.ArrowInvalid as error:
        raise InvalidSelector(-1, f"{condition} has no RE2 pattern: {error}") from error
    return {value for value, is_match in zip(values, found.to_pylist(), strict=True) if is_match}


def _token(form: re.Pattern[str], text: str, position: int, expected: str) -> tuple[str, int]:
    match = form.match(text, position)
    if match is None:
        raise InvalidSelector(position, f"expected {expected}")
    return match[0], _after_space(text, match.end())


def _skip(text: str, position: int, mark: str) -> int:
    position = _after_space(text, position)
    if not text.startswith(mark, position):
        raise InvalidSelector(position, f"expected {mark}")
    return _after_space(text, position + 1)


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _plain(token: str) -> str:
    if not token.startswith('"'):
        return token
    return _ESCAPE.sub(lambda found: _unescaped(found[1]), token[1:-1])


def _unescaped(letter: str) -> str:
    if letter not in _ESCAPES:
        raise InvalidSelector(-1, f"unknown escape \\{letter}")
    return _ESCAPES[letter]


def project(label_sets: Iterable[Labels], names: Sequence[str]) -> Iterator[Labels]:
    """Yield the distinct label sets that remain when only ``names`` are kept, in the order found."""
    seen: set[Labels] = set()
    for labels in label_sets:
        kept = tuple((name, value) for name, value in labels if name in names)
        if kept and kept not in seen:
            seen.add(kept)
            yield kept
