"""Validate and repair the labels of a pushed series.

Rules: ``docs/reference/formats/profile-api.md``, "Labels". One difference: an invalid label (no name, duplicate name,
invalid UTF-8) is dropped or repaired with a note, and the profile is kept. A label above a limit rejects the series,
because dropping it would join different series.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import xxhash

from engine.formats.profile_block.model import Label, Labels
from engine.ingest.model import PushLimits, Refused
from engine.ingest.segments.label_memory import remembered

METRIC_NAME = "__name__"
SERVICE_NAME = "service_name"
SESSION = "__session_id__"
DELTA = "__delta__"
REPLACED_NAME = "__name_replaced__"
UNKNOWN_SERVICE = "unknown_service"
"""Service name of a push without one."""
_DELTA_PROFILER = "godeltaprof_"
_SESSION_ID = re.compile(r"[0-9a-fA-F]{16}")


@dataclass(frozen=True, slots=True)
class CheckedLabels:
    """Unique labels by name, and notes on repairs."""

    labels: Labels
    notes: tuple[str, ...] = ()


def check_labels(given: Iterable[Label], limits: PushLimits) -> CheckedLabels:
    """Return the labels of a series. Raises Refused for too many or too long labels, or without a metric name."""
    return _checked(tuple(given), limits)


@remembered
def _checked(given: Labels, limits: PushLimits) -> CheckedLabels:
    kept, notes = _mended(given)
    if not kept:
        raise Refused("missing_labels", "the series has no labels; it needs at least __name__ and service_name")
    if not kept.get(SERVICE_NAME):
        kept[SERVICE_NAME] = UNKNOWN_SERVICE
    _limit_sessions(kept, limits, notes)
    relabelled = _relabelled(kept)
    if not relabelled.get(METRIC_NAME):
        raise Refused("invalid_labels", "the series has no __name__; it says what was measured, such as process_cpu")
    _check_limits(relabelled, limits)
    return CheckedLabels(tuple(sorted(relabelled.items())), tuple(notes))


def _mended(given: Iterable[Label]) -> tuple[dict[str, str], list[str]]:
    kept: dict[str, str] = {}
    notes: list[str] = []
    for raw_name, raw_value in given:
        name, value = _text(raw_name), _text(raw_value)
        if (name, value) != (raw_name, raw_value):
            notes.append(f"label {name!r}: what is not valid text was replaced")
        if not name:
            notes.append(f"a label without a name was left out (value {value[:40]!r})")
        elif name not in kept:
            kept[name] = value
        elif kept[name] != value:
            notes.append(f"label {name!r} was given twice; the first value stays")
    return kept, notes


def _text(text: str) -> str:
    """Return text with lone surrogates, which JSON allows, replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _limit_sessions(labels: dict[str, str], limits: PushLimits, notes: list[str]) -> None:
    """Map a session id to one of ``sessions_max`` values, to bound the number of series."""
    session = labels.pop(SESSION, None)
    if session is None or not limits.sessions_max:
        return
    if not _SESSION_ID.fullmatch(session):
        notes.append("the session's id is not 16 hexadecimal digits; it was left out")
        return
    number = int.from_bytes(bytes.fromhex(session), "little") % limits.sessions_max
    labels[SESSION] = number.to_bytes(8, "little").hex()


def _relabelled(labels: dict[str, str]) -> dict[str, str]:
    """Apply the two default rules: Go delta profiles get the plain metric, and mislabelled wall profiles become CPU."""
    name = labels.get(METRIC_NAME, "")
    if name.startswith(_DELTA_PROFILER):
        return labels | {METRIC_NAME: name.removeprefix(_DELTA_PROFILER), DELTA: "false", REPLACED_NAME: name}
    if name == "wall" and labels.get("__type__") == "cpu":
        return labels | {METRIC_NAME: "process_cpu", REPLACED_NAME: name}
    return labels


def _check_limits(labels: dict[str, str], limits: PushLimits) -> None:
    if len(labels) > limits.labels_max:
        message = f"the series has {len(labels)} labels, the limit is {limits.labels_max}; the last is {max(labels)!r}"
        raise Refused("max_label_names_per_series", message)
    for name, value in labels.items():
        if _size(name) > limits.label_name_bytes_max:
            message = f"the name of label {name[:80]!r}… is longer than {limits.label_name_bytes_max} bytes"
            raise Refused("label_name_too_long", message, label=name[:80])
        if _size(value) > limits.label_value_bytes_max:
            message = f"the value of label {name!r} is longer than {limits.label_value_bytes_max} bytes"
            raise Refused("label_value_too_long", message, label=name)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


@remembered
def series_hash(labels: Labels) -> int:
    """Return the placement fingerprint of a series: XXH64 over name, 0xFF, value, 0xFF of the labels in order.

    Source: ``docs/reference/placement-rules.md``, "Keys and sizes".
    """
    return xxhash.xxh64_intdigest(
        b"".join(name.encode() + b"\xff" + value.encode() + b"\xff" for name, value in labels)
    )
