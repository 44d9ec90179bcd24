"""Read the segments of intervals of a timeline, extended until no file crosses the borders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

from django.db.models import Max, Q

from engine.lanes.tables.plan.granularity import Granularity
from engine.lanes.tables.plan.model import Segment as PlannedSegment
from webadmin.lanes.tables.models import DataSource, Segment
from webadmin.lanes.tables.states import SegmentState

Interval = tuple[int, int]

INTERVALS_PER_QUERY = 100
_COLUMNS = (
    *("id", "start_ms", "end_ms", "version", "partition", "minor_version", "size_bytes", "row_count"),
    *("is_tombstone", "folder"),
)


def touching(source: DataSource, intervals: Iterable[Interval]) -> list[PlannedSegment]:
    """Return the visible segments that overlap any of these intervals of whole chunks, unordered."""
    wanted = merged(intervals)
    found: dict[int, PlannedSegment] = {}
    for first in range(0, len(wanted), INTERVALS_PER_QUERY):
        stretches = reduce(or_, (_overlapping(*each) for each in wanted[first : first + INTERVALS_PER_QUERY]))
        rows = Segment.objects.filter(stretches, source=source, state=SegmentState.VISIBLE).order_by()
        found |= {row[0]: planned(row) for row in rows.values_list(*_COLUMNS)}
    return list(found.values())


def closure(
    source: DataSource, granularity: Granularity, intervals: Iterable[Interval]
) -> tuple[list[PlannedSegment], list[Interval]]:
    """Return the segments of these intervals with all that share chunks with them, and the extended intervals.

    The intervals are extended to whole chunks until no segment crosses a border. They are disjoint and sorted.
    """
    wanted = merged(intervals)
    while True:
        segments = touching(source, wanted)
        hulls = [granularity.hull(one.start_ms, one.end_ms) for one in segments]
        widened = merged([*wanted, *hulls])
        if widened == wanted:
            return segments, wanted
        wanted = widened


def whole_timeline(source: DataSource) -> list[PlannedSegment]:
    """Return every visible segment of a table, unordered."""
    rows = Segment.objects.filter(source=source, state=SegmentState.VISIBLE).order_by()
    return [planned(row) for row in rows.values_list(*_COLUMNS).iterator(chunk_size=10_000)]


def latest_end(source: DataSource) -> int | None:
    """Return the end of a table's last segment with data."""
    own = Segment.objects.filter(source=source, state=SegmentState.VISIBLE, is_tombstone=False)
    latest: int | None = own.aggregate(latest=Max("end_ms"))["latest"]
    return latest


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals, sorted; overlapping and adjacent ones are joined."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def planned(row: Sequence[object]) -> PlannedSegment:
    """Return a segment in the form that planners take."""
    values = dict(zip(_COLUMNS, row, strict=True))
    return PlannedSegment(key=values.pop("id"), rows=values.pop("row_count"), **values)  # type: ignore[arg-type]


def _overlapping(start_ms: int, end_ms: int) -> Q:
    """Return the condition that a segment overlaps whole chunks; most segments lie within one chunk."""
    inside = Q(is_spanning=False, start_ms__gte=start_ms, start_ms__lt=end_ms)
    return inside | Q(is_spanning=True, start_ms__lt=end_ms, end_ms__gt=start_ms)
