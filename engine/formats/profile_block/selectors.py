"""Parser of label selectors such as ``{service_name="checkout", region!~"eu-.*"}``, and matching of label sets.

The label sets of a dataset in an index do not contain every label. Such a set matches if it has a matching value for
every ``=`` and ``=~`` (an absent name never matches, not even an empty value) and no value that violates ``!=`` or
``!~``; a dataset matches if any of its sets does. A series has all its labels: an absent name has an empty value.
Regular expressions are those of RE2, which run in linear time, and match whole values.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from engine.core.errors import LithifyError
from engine.formats.profile_block.model import IndexedSeries, Labels

MATCHERS_MAX = 50
SELECTOR_LENGTH_MAX = 10_000
PATTERN_LENGTH_MAX = 1_000
STEP_CHARACTERS = 1 << 16
"""Characters that a pattern is matched against between two checks; the slowest patterns need a second for them."""

_SPACE = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_.]*|"(?:[^"\\\n]|\\.)*"')
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r"=~|!~|!=|=")
_METRIC = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_TEXT = re.compile(r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`""")
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-7]{3}|.)", re.DOTALL)
_ESCAPES = {
    '"': b'"',
    "'": b"'",
    "\\": b"\\",
    "a": b"\a",
    "b": b"\b",
    "f": b"\f",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
}
METRIC_NAME = "__name__"


class InvalidSelector(LithifyError):
    """A label selector is invalid; ``offset`` is the character of the fault (-1 if it has no single position)."""

    code = "invalid_selector"

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return self.reason + (f" at character {self.offset}" if self.offset >= 0 else "")


class MatchOperator(enum.StrEnum):
    """The operator of a matcher."""

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
    """A condition on a label; ``matcher`` creates a validated one."""

    name: str
    operator: MatchOperator
    value: str

    def __str__(self) -> str:
        name = self.name if _WORD.fullmatch(self.name) else f'"{_escaped(self.name)}"'
        return f'{name}{self.operator}"{_escaped(self.value)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


def matcher(name: str, operator: str, value: str) -> Matcher:
    """Return a matcher. Raises InvalidSelector."""
    if not name:
        raise InvalidSelector(-1, "a matcher has no label name")
    try:
        made = Matcher(name, MatchOperator(operator), value)
    except ValueError:
        raise InvalidSelector(-1, f"{operator!r} is not an operator: use =, !=, =~ or !~") from None
    if made.operator.is_pattern:
        _matching_values(made, [""])  # rejects invalid patterns
    return made


def parse_selector(text: str) -> tuple[Matcher, ...]:
    """Return the matchers of a selector; "" and ``{}`` match everything, ``name{}`` matches the ``__name__``.

    Values are in double or single quotes with the escapes of Go, or in back quotes without escapes. Raises
    InvalidSelector.
    """
    if len(text) > SELECTOR_LENGTH_MAX:
        raise InvalidSelector(-1, f"the selector is longer than {SELECTOR_LENGTH_MAX} characters")
    if not text.strip():
        return ()
    found: list[Matcher] = []
    start = _after_space(text, 0)
    if metric := _METRIC.match(text, start):
        found.append(matcher(METRIC_NAME, "=", metric[0]))
        start = metric.end()
    position = opened = _skip(text, start, "{")
    while not text.startswith("}", position):
        if position != opened:
            position = _skip(text, position, ",")
            if text.startswith("}", position):  # trailing comma
                break
        name, position = _token(_NAME, text, position, "a label name")
        operator, position = _token(_OPERATOR, text, position, "one of = != =~ !~")
        value, position = _token(_TEXT, text, position, "a value in quotes")
        found.append(matcher(_plain(name), operator, _plain(value)))
        if len(found) > MATCHERS_MAX:
            raise InvalidSelector(position, f"more than {MATCHERS_MAX} matchers")
    position = _skip(text, position, "}")
    if position != len(text):
        raise InvalidSelector(position, "unexpected text after the selector")
    return tuple(found)


def select_label_sets(label_sets: Sequence[Labels], matchers: Sequence[Matcher]) -> list[Labels]:
    """Return the label sets that match."""
    return [labels for labels, is_match in zip(label_sets, match_all(label_sets, matchers), strict=True) if is_match]


def fits(condition: Matcher, value: str) -> bool:
    """Return whether a label value satisfies a condition; "" is the value of an absent label."""
    return value in _fitting(condition, [value])


class SeriesFilter:
    """Filters series by all their labels; the result for each value is cached.

    Of duplicate labels the first counts. ``check`` is called before each step and may raise.
    """

    def __init__(self, matchers: Iterable[Matcher], check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._conditions = tuple((each, each.name.encode(), dict[bytes, bool]()) for each in matchers)

    def matching(self, series: Sequence[IndexedSeries]) -> list[IndexedSeries]:
        """Return the matching series in the same order."""
        left = list(series)
        for condition, name, matches in self._conditions:
            values = [_value(entry, name) for entry in left]
            if unknown := sorted(set(values) - matches.keys()):
                texts = [value.decode(errors="replace") for value in unknown]
                fitting = _fitting(condition, texts, self._check)
                matches.update((value, text in fitting) for value, text in zip(unknown, texts, strict=True))
            left = [entry for entry, value in zip(left, values, strict=True) if matches[value]]
        return left


def _value(entry: IndexedSeries, label: bytes) -> bytes:
    for name, value in entry.labels:
        if name == label:
            return value
    return b""


def match_all(label_sets: Sequence[Labels], matchers: Iterable[Matcher]) -> list[bool]:
    """Return for each label set whether it matches; patterns are applied once per distinct value."""
    matches = [True] * len(label_sets)
    for condition in matchers:
        values = {value for labels in label_sets for name, value in labels if name == condition.name}
        fitting = _fitting(condition, sorted(values))
        for position, labels in enumerate(label_sets):
            present = [value for name, value in labels if name == condition.name]
            if condition.operator.is_negative:
                matches[position] &= all(value in fitting for value in present)
            else:
                matches[position] &= any(value in fitting for value in present)
    return matches


def _fitting(condition: Matcher, values: list[str], check: Callable[[], None] = lambda: None) -> set[str]:
    """Return the values that satisfy the condition."""
    if condition.operator.is_pattern:
        matching = set[str]()
        for part in _steps(values):
            check()
            matching |= _matching_values(condition, part)
    else:
        matching = {condition.value}
    return set(values) - matching if condition.operator.is_negative else matching


def _steps(values: list[str]) -> Iterator[list[str]]:
    """Yield the values in parts of about ``STEP_CHARACTERS``."""
    part: list[str] = []
    characters = 0
    for value in values:
        part.append(value)
        characters += len(value)
        if characters >= STEP_CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part


def _matching_values(condition: Matcher, values: list[str]) -> set[str]:
    if len(condition.value) > PATTERN_LENGTH_MAX:
        raise InvalidSelector(-1, f"the pattern for {condition.name} is longer than {PATTERN_LENGTH_MAX} characters")
    try:
        # Validated without the group: "a)|(b" is invalid, but would be valid inside of it. An array of nulls is used
        # because arrays of Python values import pandas.
        pc.match_substring_regex(pa.nulls(1, pa.string()), pattern=condition.value)
        found = pc.match_substring_regex(pa.array(values, pa.string()), pattern=rf"\A(?s:{condition.value})\z")
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        raise InvalidSelector(-1, f"{condition} has an invalid RE2 pattern: {error}") from error
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
    if token.startswith("`"):
        return token[1:-1]
    if token[:1] not in ("'", '"'):
        return token
    inner = token[1:-1]
    out = bytearray()
    end = 0
    for found in _ESCAPE.finditer(inner):
        out += inner[end : found.start()].encode(errors="surrogatepass") + _unescaped(found[1])
        end = found.end()
    out += inner[end:].encode(errors="surrogatepass")
    try:
        return out.decode()
    except UnicodeDecodeError:
        raise InvalidSelector(-1, f"{token} is not UTF-8 text") from None


def _unescaped(escape: str) -> bytes:
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    if escape[0] in "uU" and len(escape) > 1 and int(escape[1:], 16) <= 0x10FFFF:
        return chr(int(escape[1:], 16)).encode(errors="surrogatepass")
    if escape[0] == "x" and len(escape) > 1:
        return bytes([int(escape[1:], 16)])
    if len(escape) == 3 and int(escape, 8) < 256:
        return bytes([int(escape, 8)])
    raise InvalidSelector(-1, f"unknown escape \\{escape}")


def project(label_sets: Iterable[Labels], names: Sequence[str]) -> Iterator[Labels]:
    """Yield the distinct label sets restricted to ``names``, in order of first occurrence."""
    seen: set[Labels] = set()
    for labels in label_sets:
        kept = tuple((name, value) for name, value in labels if name in names)
        if kept and kept not in seen:
            seen.add(kept)
            yield kept
