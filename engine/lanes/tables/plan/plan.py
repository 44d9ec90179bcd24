"""The door: all segments of a data source go in; chunks, judged, and tasks come out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from engine.lanes.tables.plan.candidates import find_runs
from engine.lanes.tables.plan.colours import make_tasks
from engine.lanes.tables.plan.layout import lay_out
from engine.lanes.tables.plan.model import Segment, TimelinePlan
from engine.lanes.tables.plan.policy import TimelinePolicy
from engine.lanes.tables.plan.scoring import Known, score, skips
from engine.schedule.errors import SnapshotRefused


def plan_timeline(
    source: str,
    segments: Sequence[Segment],
    policy: TimelinePolicy,
    *,
    now_ms: int,
    outputs: Mapping[int, frozenset[int]] | None = None,
) -> TimelinePlan:
    """Plan a whole data source; the order of ``segments`` makes no difference.

    ``outputs`` are the segments that the last successful task left in a chunk, by its start, under the policy's output
    fingerprint. Raises SnapshotRefused for segments that cannot be, TimelineCorrupt where versions contradict.
    """
    layout = lay_out(segments, policy)
    known = Known(now_ms=now_ms, latest_end_ms=layout.latest_end_ms, outputs=outputs or {})
    chunks = score(layout, np.arange(len(layout)), policy, known, skips(layout, policy, known))
    found = find_runs(chunks, policy)
    if found.tied:
        chunks = [found.tied.get(chunk.start_ms, (chunk, ""))[0] for chunk in chunks]
    return TimelinePlan(
        source=source,
        chunks=tuple(chunks),
        tasks=tuple(make_tasks(source, found.runs, now_ms=now_ms)),
        unbounded=layout.unbounded_keys,
    )


def segments_of_time_chunks(time_chunks: Iterable[Sequence[Segment]]) -> list[Segment]:
    """Return the segments of lists per time chunk, in which those that span chunks come more than once.

    Raises SnapshotRefused if two lists tell different things of one segment.
    """
    found: dict[int, Segment] = {}
    for segments in time_chunks:
        for one in segments:
            if found.setdefault(one.key, one) != one:
                raise SnapshotRefused(f"two lists tell different things of segment {one.key}")
    return list(found.values())
