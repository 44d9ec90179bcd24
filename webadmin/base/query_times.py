"""Parse times of ``/ingest`` and the legacy query API. Source: profile API format sheet, section 6.1."""

from __future__ import annotations

import re
from datetime import UTC, datetime

DAY_S = 86_400
_UNITS = (("s", 1), ("mon", 30 * DAY_S), ("M", 30 * DAY_S), ("min", 60), ("m", 60), ("h", 3_600), ("d", DAY_S), ("w", 7 * DAY_S), ("y", 365 * DAY_S))  # fmt: skip  # noqa: E501
"""Prefixes of units, with their seconds; the first match counts."""
_PER_SECOND = {13: 1_000, 16: 1_000_000, 19: 1_000_000_000}
DIGITS_MAX = 19
LATEST_S = 253_402_300_799.0
"""The last second of the year 9999."""
_PAIR = re.compile(r"(\d{1,9})([A-Za-z]*)")


def parse_time(text: str, now_s: float) -> float:
    """Return unix seconds; empty text and unknown words mean ``now_s``. Clamped to the years 1970 to 9999."""
    text = re.sub(r"[_, ]", "", text)[:100]
    if text.isascii() and text.isdigit():
        return min(_of_digits(text), LATEST_S)
    sign = "+" if "+" in text else "-"
    _, _, offset = text.partition(sign)
    seconds = sum(int(number) * _seconds(unit) for number, unit in _PAIR.findall(offset))
    return min(max(now_s + (seconds if sign == "+" else -seconds), 0.0), LATEST_S)


def _of_digits(text: str) -> float:
    if len(text) == 8 and text > "1900":
        try:
            return datetime.strptime(text, "%Y%m%d").replace(tzinfo=UTC).timestamp()
        except ValueError:
            pass
    return int(text[:DIGITS_MAX]) / _PER_SECOND.get(len(text), 1)


def _seconds(unit: str) -> int:
    return next((seconds for beginning, seconds in _UNITS if unit.startswith(beginning)), 0)
