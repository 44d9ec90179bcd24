"""Blocks and visits of a bucket in the words of the planner by interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.planning.intervals.model import IntervalBlock, VisitMark
from engine.tsdb.block_reader import INDEX
from engine.tsdb.buckets.model import FoundBlock, Mark, MarkKey, MarkKind
from engine.tsdb.buckets.sections import origin
from engine.tsdb.buckets.visits import ForeignVisit

UNNAMED = "who cannot be told"


def interval_block(block: FoundBlock, marks: Mapping[MarkKey, Mark]) -> IntervalBlock:
    """Return what the planner knows of a block under these marks; a mark that cannot be read counts as one."""
    meta, said = block.meta, origin(block.meta)
    no_compact = marks.get((block.ulid, MarkKind.NO_COMPACT))
    return IntervalBlock(
        ulid=block.ulid,
        min_time_ms=meta.min_time_ms,
        max_time_ms=meta.max_time_ms,
        level=meta.compaction.level,
        group_key=block.group_key,
        series=meta.stats.num_series,
        index_bytes=next((file.size for file in block.files if file.name == INDEX), None),
        size_bytes=block.size,
        uploaded_at_ms=int(block.uploaded_at_s * 1000),
        sources=meta.compaction.sources,
        partition=said.place.partition if said.place else 0,
        partitions=said.place.partitions if said.place else 1,
        produced_by=said.place.group_id if said.place else None,
        time_range_ms=said.range_ms or None,
        no_compact=(no_compact.reason or no_compact.fault or "no reason told") if no_compact else "",
        is_deleted=(block.ulid, MarkKind.DELETION) in marks,
        is_failed=meta.compaction.failed,
        tombstones=meta.stats.num_tombstones,
        hints=meta.compaction.hints,
    )


def visit_marks(visits: Iterable[ForeignVisit]) -> list[VisitMark]:
    """Return visits as the planner takes them, which refuses the tenant for them."""
    return [
        VisitMark(place=visit.key, visitor=visit.compactor or UNNAMED, visited_at_ms=int(visit.visited_at_s * 1000))
        for visit in visits
    ]
