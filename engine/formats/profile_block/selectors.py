"""Label selectors such as ``{service_name="checkout", region!~"eu-.*"}``, and which label sets they match.

What an index knows of a dataset are label sets that do not name every label: such a set matches if every ``=`` and
``=~`` finds its name in it with such a value (a name that is not there never matches, not even an empty value) and no
``!=`` or ``!~`` is broken by a name that is there; a dataset matches if any of its sets does. A series has all its
labels: in it, a name that is not there is an empty value. Regular expressions are RE2's, so no pattern can take long,
and they match whole values.
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
STEP_LETTERS = 1 << 16
"""So many letters a pattern is held against at once: a nasty one needs a second for them, then time is looked at."""

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
    """A label selector cannot be read; ``offset`` is the character where the trouble is (-1: no single place)."""

    code = "invalid_selector"

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return self.reason + (f" at character {self.offset}" if self.offset >= 0 else "")


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
        raise InvalidSelector(-1, f"{operator!r} is no operator: use =, !=, =~ or !~") from None
    if made.operator.is_pattern:
        _matching_values(made, [""])  # an impossible pattern is refused here and not at its first use
    return made


def parse_selector(text: str) -> tuple[Matcher, ...]:
    """Read a selector; "" and ``{}`` match everything, ``name{}`` what has this ``__name__``.

    Values stand in double or single quotes with the escapes of Go, or in back quotes without any. Raises
    InvalidSelector naming the place.
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
            if text.startswith("}", position):  # a comma may end the list
                break
        name, position = _token(_NAME, text, position, "a label name")
        operator, position = _token(_OPERATOR, text, position, "one of = != =~ !~")
        value, position = _token(_TEXT, text, position, "a value in quotes")
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


def fits(condition: Matcher, value: str) -> bool:
    """Say whether a label of this value breaks no condition on it; "" is also that of a label which is not there."""
    return value in _fitting(condition, [value])


class SeriesFilter:
    """Decides for series, by all their labels; what it found for a value it need not find again.

    Of labels that a series has twice the first counts. ``check`` may raise: it is called before each larger step.
    """

    def __init__(self, matchers: Iterable[Matcher], check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._conditions = tuple((each, each.name.encode(), dict[bytes, bool]()) for each in matchers)

    def matching(self, series: Sequence[IndexedSeries]) -> list[IndexedSeries]:
        """Return those that match, in the same order."""
        left = list(series)
        for condition, name, verdicts in self._conditions:
            values = [_value(entry, name) for entry in left]
            if unknown := sorted(set(values) - verdicts.keys()):
                texts = [value.decode(errors="replace") for value in unknown]
                fitting = _fitting(condition, texts, self._check)
                verdicts.update((value, text in fitting) for value, text in zip(unknown, texts, strict=True))
            left = [entry for entry, value in zip(left, values, strict=True) if verdicts[value]]
        return left


def _value(entry: IndexedSeries, wanted: bytes) -> bytes:
    for name, value in entry.labels:
        if name == wanted:
            return value
    return b""


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


def _fitting(condition: Matcher, values: list[str], check: Callable[[], None] = lambda: None) -> set[str]:
    """Return the values that do not break the condition."""
    if condition.operator.is_pattern:
        matching = set[str]()
        for part in _steps(values):
            check()
            matching |= _matching_values(condition, part)
    else:
        matching = {condition.value}
    return set(values) - matching if condition.operator.is_negative else matching


def _steps(values: list[str]) -> Iterator[list[str]]:
    """Yield the values in parts of about ``STEP_LETTERS``."""
    part: list[str] = []
    letters = 0
    for value in values:
        part.append(value)
        letters += len(value)
        if letters >= STEP_LETTERS:
            yield part
            part, letters = [], 0
    if part:
        yield part


def _matching_values(condition: Matcher, values: list[str]) -> set[str]:
    if len(condition.value) > PATTERN_LENGTH_MAX:
        raise InvalidSelector(-1, f"the pattern for {condition.name} is longer than {PATTERN_LENGTH_MAX} characters")
    try:
        # Alone: "a)|(b" is none, but would be inside. Arrays of Python's values import pandas: not for this, nor when a
        # process starts.
        pc.match_substring_regex(pa.nulls(1, pa.string()), pattern=condition.value)
        found = pc.match_substring_regex(pa.array(values, pa.string()), pattern=rf"\A(?s:{condition.value})\z")
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
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


def _unescaped(letters: str) -> bytes:
    if letters in _ESCAPES:
        return _ESCAPES[letters]
    if letters[0] in "uU" and len(letters) > 1 and int(letters[1:], 16) <= 0x10FFFF:
        return chr(int(letters[1:], 16)).encode(errors="surrogatepass")
    if letters[0] == "x" and len(letters) > 1:
        return bytes([int(letters[1:], 16)])
    if len(letters) == 3 and int(letters, 8) < 256:
        return bytes([int(letters, 8)])
    raise InvalidSelector(-1, f"unknown escape \\{letters}")


def project(label_sets: Iterable[Labels], names: Sequence[str]) -> Iterator[Labels]:
    """Yield the distinct label sets that remain when only ``names`` are kept, in the order found."""
    seen: set[Labels] = set()
    for labels in label_sets:
        kept = tuple((name, value) for name, value in labels if name in names)
        if kept and kept not in seen:
            seen.add(kept)
            yield kept
