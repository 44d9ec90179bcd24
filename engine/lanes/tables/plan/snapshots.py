"""The input of one cycle of the controller: changed periods, the state store, the queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.lanes.tables.plan.model import Extent, QueuedTask, Segment, StoredChunk
from engine.lanes.tables.plan.policy import QueueLimits, TimelinePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSnapshot:
    """The possibly changed part of one data source.

    ``extents`` are the periods to analyse: the changed chunks, widened until no segment crosses a border and no chunk
    is cut; None for the whole timeline. ``segments`` are all segments in them. ``rows`` are those of the state store
    for every chunk in the extents, for every chunk of a waiting task that has one of these, and for the most urgent
    deferred chunks, up to ``QueueLimits.waiting_max``; each with the rows that share a segment with it.
    ``latest_end_ms`` is the end of the whole timeline's last segment, the reference of the hot window; None: that of
    ``segments``.

    ``urgent`` are starts of chunks that an operator prioritised, also if they were quarantined. Chunks in ``unread``
    had a commit after which the segments were not read; they are skipped in this cycle.
    """

    source: str
    policy: TimelinePolicy
    segments: tuple[Segment, ...] = ()
    extents: tuple[Extent, ...] | None = None
    rows: tuple[StoredChunk, ...] = ()
    latest_end_ms: int | None = None
    urgent: frozenset[int] = frozenset()
    unread: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleSnapshot:
    """The input of one cycle. ``tasks`` are all waiting and running tasks, of all data sources.

    ``starts_tasks`` is False if another component, such as a poll, decides what starts: then no task is started.
    """

    now_ms: int
    sources: tuple[SourceSnapshot, ...] = ()
    tasks: tuple[QueuedTask, ...] = ()
    limits: QueueLimits = field(default_factory=QueueLimits)
    starts_tasks: bool = True
