"""What one turn of the controller is told: the stretches that changed, the state store, the queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.lanes.tables.plan.model import Extent, QueuedTask, Segment, StoredChunk
from engine.lanes.tables.plan.policy import QueueLimits, TimelinePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSnapshot:
    """What may have changed in one data source.

    ``extents`` are the stretches that are looked at: the chunks that changed, widened until no segment crosses a border
    and no chunk is cut; None for the whole timeline. ``segments`` are all that lie in them. ``rows`` are those of the
    state store for every chunk in the extents, for every chunk of a waiting task that has one of those, and for the
    most urgent of those put off, as many as could wait (``QueueLimits.waiting_max``); each with the rows that share a
    segment with it. ``latest_end_ms`` is the end of the whole timeline's last segment, which anchors the hot window;
    None: that of ``segments``.

    ``urgent`` are starts of chunks that an operator wants compacted: they come first, whatever set them aside. Chunks
    in ``unread`` had a commit that the segments were not read after: they are left alone this time.
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
    """What one turn is told. ``tasks`` are all that wait or run, also those of other data sources.

    ``starts_tasks`` is False where something else, such as a poll, decides what is started: then none is said to be.
    """

    now_ms: int
    sources: tuple[SourceSnapshot, ...] = ()
    tasks: tuple[QueuedTask, ...] = ()
    limits: QueueLimits = field(default_factory=QueueLimits)
    starts_tasks: bool = True
