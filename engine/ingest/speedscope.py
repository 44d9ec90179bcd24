"""Convert speedscope files (JSON of one or several sampled or evented profiles) to stacks with counts.

Rules: ``docs/reference/formats/profile-api.md``, "Formats", with corrections where upstream's values are wrong:
nanoseconds are not scaled, and the time before an ``O`` event is scaled like the time before a ``C`` event.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.ingest.model import Refused
from engine.ingest.text_stacks import INT64_MAX, REASON, Stack, StackCounts

SCHEMA_URL = "https://www.speedscope.app/file-format-schema.json"
DEPTH_MAX = 10_000
FRAMES_MAX = 8_000_000
"""Maximum frames of all stacks of one evented profile; each event creates a stack."""
_FACTOR = 100
"""Counts per unit for all units except bytes; the rates below expect it."""
_RATES = {"seconds": 100, "milliseconds": 100_000, "microseconds": 100_000_000, "none": 10_000, "bytes": 0}
_NANOSECONDS_RATE = 1_000_000_000


@dataclass(slots=True)
class SpeedscopeProfile:
    """One profile: stacks (root first) with counts, and the rate that converts counts to nanoseconds."""

    name: str
    unit: str
    stacks: StackCounts = field(default_factory=dict)

    @property
    def rate(self) -> int:
        """Return the counts per second, 0 for a unit that is not a time.

        Used if the sender's rate is the default of 100; other rates are used as sent.
        """
        return _NANOSECONDS_RATE if self.unit == "nanoseconds" else _RATES[self.unit]

    @property
    def factor(self) -> int:
        """Return the counts per unit of the file."""
        return 1 if self.unit in {"bytes", "nanoseconds"} else _FACTOR


def parse_speedscope(data: bytes) -> list[SpeedscopeProfile]:
    """Parse a file; profiles with equal name, type, unit and start are merged. Raises Refused with the position."""
    document = _document(data)
    frames = [_name(frame, index) for index, frame in enumerate(_list(_object(document, "shared"), "frames"))]
    found: dict[tuple[str, str, str, float], SpeedscopeProfile] = {}
    for index, entry in enumerate(_list(document, "profiles")):
        place = f"profiles[{index}]"
        if not isinstance(entry, dict):
            raise _malformed(f"{place} is not an object")
        kind, unit = entry.get("type"), entry.get("unit", "none")
        if unit not in (*_RATES, "nanoseconds"):
            raise _malformed(f"{place}.unit: unknown unit {unit!r}")
        start = _number(entry.get("startValue", 0), f"{place}.startValue")
        name = entry.get("name") if isinstance(entry.get("name"), str) else ""
        profile = found.setdefault((str(name), str(kind), unit, start), SpeedscopeProfile(str(name), unit))
        if kind == "sampled":
            _add_samples(profile, entry, frames, place)
        elif kind == "evented":
            _add_events(profile, entry, frames, place)
        else:
            raise _malformed(f"{place}.type: {kind!r} is neither 'sampled' nor 'evented'")
    return [found[key] for key in sorted(found, key=lambda key: key[3])]


def _document(data: bytes) -> Mapping[str, object]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _malformed(f"not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("$schema") != SCHEMA_URL:
        raise _malformed(f"$schema is not {SCHEMA_URL}")
    return document


def _add_samples(profile: SpeedscopeProfile, entry: Mapping[str, object], frames: Sequence[bytes], place: str) -> None:
    samples, weights = _list(entry, "samples", place), _list(entry, "weights", place)
    if len(samples) != len(weights):
        raise _malformed(f"{place}: {len(samples)} samples and {len(weights)} weights")
    for index, (sample, weight) in enumerate(zip(samples, weights, strict=True)):
        if not isinstance(sample, list):
            raise _malformed(f"{place}.samples[{index}] is not a list")
        amount = _number(weight, f"{place}.weights[{index}]")
        if amount < 0:
            raise _malformed(f"{place}.weights[{index}] is negative")
        stack = tuple(_frame(frames, ref, f"{place}.samples[{index}]") for ref in sample)
        _add(profile, stack, amount, place)


def _add_events(profile: SpeedscopeProfile, entry: Mapping[str, object], frames: Sequence[bytes], place: str) -> None:
    events = []
    for index, event in enumerate(_list(entry, "events", place)):
        where = f"{place}.events[{index}]"
        if not isinstance(event, dict) or event.get("type") not in {"O", "C"}:
            raise _malformed(f"{where} is neither an 'O' nor a 'C' event")
        events.append((_number(event.get("at"), f"{where}.at"), event["type"], event.get("frame"), where))
    events.sort(key=lambda event: event[0])
    opened: list[int] = []
    frames_seen = 0
    before = _number(entry.get("startValue", 0), f"{place}.startValue")
    for at, kind, ref, where in events:
        frames_seen += len(opened)
        if len(opened) > DEPTH_MAX or frames_seen > FRAMES_MAX:
            raise _malformed(f"{where}: the open stacks are too deep ({len(opened)} frames)")
        if opened:
            stack = tuple(frames[one] for one in opened)
            _add(profile, stack, at - before, place)
        before = at
        _frame(frames, ref, where)
        if kind == "O":
            opened.append(int(str(ref)))
        elif not opened or opened.pop() != ref:
            raise _malformed(f"{where} closes a frame that is not the innermost open one")


def _add(profile: SpeedscopeProfile, stack: Stack, amount: float, place: str) -> None:
    value = int(amount) * profile.factor
    total = profile.stacks.get(stack, 0) + value
    if total > INT64_MAX:
        raise _malformed(f"{place}: the weights of a stack sum to more than 63 bits")
    if value and stack:
        profile.stacks[stack] = total


def _frame(frames: Sequence[bytes], ref: object, place: str) -> bytes:
    if not isinstance(ref, int) or isinstance(ref, bool) or not 0 <= ref < len(frames):
        raise _malformed(f"{place}: {ref!r} is not one of the {len(frames)} frames")
    return frames[ref]


def _name(frame: object, index: int) -> bytes:
    name = frame.get("name") if isinstance(frame, dict) else None
    if not isinstance(name, str):
        raise _malformed(f"shared.frames[{index}] has no name")
    return name.encode("utf-8", "replace")


def _object(document: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = document.get(key)
    if not isinstance(found, dict):
        raise _malformed(f"{key} is not an object")
    return found


def _list(document: Mapping[str, object], key: str, place: str = "") -> list[object]:
    found = document.get(key)
    if not isinstance(found, list):
        raise _malformed(f"{place}{'.' if place else ''}{key} is not a list")
    return found


def _number(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= INT64_MAX:
        raise _malformed(f"{place}: {value!r} is not a number of 63 bits")
    return value


def _malformed(reason: str) -> Refused:
    return Refused(REASON, f"speedscope: {reason}")
