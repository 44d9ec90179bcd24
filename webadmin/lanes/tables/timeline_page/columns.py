"""Chunks of an interval as columns: one per chunk, or one per group of chunks if there are too many.

The cost of a response is proportional to the chunks it covers, and its size is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, F, Max, Min, Q, Sum

from webadmin.lanes.tables.models import Chunk, DataSource
from webadmin.lanes.tables.states import ChunkStatus
from webadmin.lanes.tables.timeline_page.query_parameters import Stretch

COLUMNS_MAX = 400
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
WIDTHS_MS = (
    *(_MINUTE_MS * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR_MS * count for count in (1, 2, 3, 6, 12)),
    *(_DAY_MS * count for count in (1, 2, 7, 14, 28, 91, 182, 364)),
)
"""Widths of columns of several chunks. The set is fixed so that panning does not move column borders."""
QUARANTINED, MISALIGNED, CHANGED = "quarantined", "misaligned", "changed"
COUNTED = (*ChunkStatus.values, QUARANTINED, MISALIGNED, CHANGED)
"""What is counted of a column's chunks.

A quarantined chunk counts only as quarantined; a misaligned chunk, and one changed since its analysis, also counts by
its state.
"""
_LIGHT = ("start_ms", "end_ms", "state", "is_quarantined", "note", "is_dirty")
_SIZES = ("segment_count", "byte_count", "largest_bytes")


@dataclass(slots=True, kw_only=True)
class Columns:
    """Columns in time order. ``width_ms`` is 0 if each column is one chunk.

    ``values`` has one list per name: start_ms, end_ms, chunks, the names in ``COUNTED``, segments, bytes (sums) and
    largest (the size of the largest segment).
    """

    width_ms: int
    values: dict[str, list[int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the columns in the form that the script reads."""
        return {"width_ms": self.width_ms, **self.values}


def read_columns(source: DataSource, stretch: Stretch) -> Columns:
    """Return the columns of the chunks that an interval touches."""
    touched = _touched(source, stretch)
    rows = list(touched.order_by("start_ms").values_list(*_LIGHT, *_SIZES)[: COLUMNS_MAX + 1])
    if len(rows) > COLUMNS_MAX:
        return _grouped(touched, stretch)
    columns = Columns(width_ms=0, values={name: [] for name in ("start_ms", "end_ms", "chunks", *COUNTED, *_SUMS)})
    for start_ms, end_ms, state, is_quarantined, note, is_dirty, segments, size, largest in rows:
        shown = {
            "start_ms": start_ms,
            "end_ms": end_ms,
            "chunks": 1,
            QUARANTINED if is_quarantined else state: 1,
            MISALIGNED: int(bool(note)),
            CHANGED: int(is_dirty),
            "segments": segments,
            "bytes": size,
            "largest": largest,
        }
        for name, values in columns.values.items():
            values.append(shown.get(name, 0))
    return columns


_SUMS = {"segments": Sum("segment_count"), "bytes": Sum("byte_count"), "largest": Max("largest_bytes")}


def _touched(source: DataSource, stretch: Stretch) -> Any:
    """Return the chunks that an interval touches.

    Chunks do not overlap: only the last one that begins before the interval can extend into it.
    """
    chunks = Chunk.objects.filter(source=source)
    before = (
        chunks.filter(start_ms__lt=stretch.start_ms).order_by("-start_ms").values_list("start_ms", "end_ms").first()
    )
    first_ms = before[0] if before and before[1] > stretch.start_ms else stretch.start_ms
    return chunks.filter(start_ms__gte=first_ms, start_ms__lt=stretch.end_ms)


def _grouped(touched: Any, stretch: Stretch) -> Columns:
    bounds = touched.aggregate(first=Min("start_ms"), last=Max("start_ms"))
    width_ms = _width(min(bounds["last"], stretch.end_ms) - bounds["first"])
    origin_ms = bounds["first"] - bounds["first"] % width_ms
    by_state = {state: Count("id", filter=Q(state=state, is_quarantined=False)) for state in ChunkStatus.values}
    rows = (
        touched.annotate(place=(F("start_ms") - origin_ms) / width_ms)
        .order_by()
        .values("place")
        .annotate(
            **{f"n_{state}": count for state, count in by_state.items()},
            n_quarantined=Count("id", filter=Q(is_quarantined=True)),
            n_misaligned=Count("id", filter=~Q(note="")),
            n_changed=Count("id", filter=Q(is_dirty=True)),
            n_chunks=Count("id"),
            **{f"n_{name}": total for name, total in _SUMS.items()},
        )
        .order_by("place")
    )
    columns = Columns(
        width_ms=width_ms, values={name: [] for name in ("start_ms", "end_ms", "chunks", *COUNTED, *_SUMS)}
    )
    for row in rows:
        start_ms = origin_ms + int(row["place"]) * width_ms
        for name, values in columns.values.items():
            if name in ("start_ms", "end_ms"):
                values.append(start_ms if name == "start_ms" else start_ms + width_ms)
            else:
                values.append(int(row[f"n_{name}"]))
    return columns


def _width(span_ms: int) -> int:
    for width_ms in WIDTHS_MS:
        if span_ms // width_ms < COLUMNS_MAX:
            return width_ms
    return WIDTHS_MS[-1] * (span_ms // (WIDTHS_MS[-1] * COLUMNS_MAX) + 1)
