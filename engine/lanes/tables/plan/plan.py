"""Plan a whole data source: from all its segments to scored chunks and tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from engine.lanes.tables.plan.candidates import find_runs
from engine.lanes.tables.plan.colours import make_tasks
from engine.lanes.tables.plan.layout import build_layout
from engine.lanes.tables.plan.model import Segment, TimelinePlan
from engine.lanes.tables.plan.policy import TimelinePolicy
from engine.lanes.tables.plan.scoring import ScoringContext, find_skipped, score
from engine.schedule.errors import SnapshotRefused


def plan_timeline(
    source: str,
    segments: Sequence[Segment],
    policy: TimelinePolicy,
    *,
    now_ms: int,
    outputs: Mapping[int, frozenset[int]] | None = None,
) -> TimelinePlan:
    """Plan a whole data source; the order of ``segments`` does not matter.

    ``outputs`` maps starts of chunks to the segments that the last successful task left there under the policy's output
    fingerprint. Raises SnapshotRefused for invalid segments, TimelineCorrupt for contradicting versions.
    """
    layout = build_layout(segments, policy)
    known = ScoringContext(now_ms=now_ms, latest_end_ms=layout.latest_end_ms, outputs=outputs or {})
    chunks = score(layout, np.arange(len(layout)), policy, known, find_skipped(layout, policy, known))
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
    """Return the distinct segments of lists per time chunk, in which spanning segments are repeated.

    Raises SnapshotRefused if two lists contradict each other about a segment.
    """
    found: dict[int, Segment] = {}
    for segments in time_chunks:
        for one in segments:
            if found.setdefault(one.key, one) != one:
                raise SnapshotRefused(f"two lists contradict each other about segment {one.key}")
    return list(found.values())
