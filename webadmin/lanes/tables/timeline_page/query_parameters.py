"""Query parameters of the timeline's endpoints: an interval of time, within bounds."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import QueryDict

from engine.core.errors import LithifyError
from webadmin.lanes.tables.models import Chunk, DataSource

NEWEST_CHUNKS = 120
"""Number of chunks shown first: about as many as a small screen can display separately."""
MOMENT_MAX = 1 << 53
"""Largest integer that JavaScript represents exactly."""


class InvalidTimelineQuery(LithifyError):
    """The query is invalid; the message names the reason."""

    code = "asked_wrongly"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """An interval of time in milliseconds, its end exclusive."""

    start_ms: int
    end_ms: int


def whole_timeline(source: DataSource) -> Stretch | None:
    """Return the interval covered by the known chunks of a table, None if there are none."""
    chunks = Chunk.objects.filter(source=source)
    first = chunks.order_by("start_ms").values_list("start_ms", flat=True).first()
    last = chunks.order_by("-start_ms").values_list("end_ms", flat=True).first()
    return Stretch(start_ms=first, end_ms=last) if first is not None and last is not None else None


def requested_stretch(source: DataSource, query: QueryDict) -> Stretch | None:
    """Return the requested interval, by default that of the newest chunks; None if the table has no chunks.

    Raises InvalidTimelineQuery.
    """
    if "from" not in query and "until" not in query:
        newest = Chunk.objects.filter(source=source).order_by("-start_ms")
        rows = list(newest.values_list("start_ms", "end_ms")[:NEWEST_CHUNKS])
        return Stretch(start_ms=rows[-1][0], end_ms=rows[0][1]) if rows else None
    start_ms, end_ms = _moment(query, "from"), _moment(query, "until")
    if start_ms >= end_ms:
        raise InvalidTimelineQuery(f"the time asked for ends before it begins: from {start_ms} until {end_ms} ms")
    return Stretch(start_ms=start_ms, end_ms=end_ms)


def requested_chunk(source: DataSource, text: str) -> Chunk | None:
    """Return the chunk that begins at this time, None if there is none."""
    if not text.removeprefix("-").isdecimal() or len(text) > len(str(MOMENT_MAX)):
        return None
    return Chunk.objects.filter(source=source, start_ms=int(text)).select_related("source__policy", "task__job").first()


def _moment(query: QueryDict, name: str) -> int:
    text = query.get(name, "")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(MOMENT_MAX)) or int(digits) > MOMENT_MAX:
        raise InvalidTimelineQuery(f"{name} is {text[:40]!r}, not a moment in milliseconds since 1970")
    return int(text)
