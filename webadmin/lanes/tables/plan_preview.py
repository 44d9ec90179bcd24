"""What a table's policy would do to it now, and whether it comes to rest: read in bounds, planned, not applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.lanes.tables.plan.forecast import PlanForecast, forecast_plan
from engine.lanes.tables.plan.granularity import Granularity
from engine.lanes.tables.plan.model import Action
from engine.lanes.tables.plan.model import Segment as PlannedSegment
from engine.lanes.tables.plan.policy import TimelinePolicy
from webadmin.base.database import dialect
from webadmin.lanes.tables.models import Chunk, DataSource, Policy, Segment
from webadmin.lanes.tables.policies import excluded_of, granularity_of, policy_of
from webadmin.lanes.tables.segment_view import closure, latest_end, whole_timeline
from webadmin.lanes.tables.states import SegmentState

SEGMENTS_MAX = 50_000
"""So many of the newest segments are planned, with all of each chunk that they reach into; older ones are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What was foreseen. ``from_ms`` is where the part that was looked at begins; None if it is the whole timeline."""

    told: PlanForecast
    segments: int
    from_ms: int | None

    @property
    def compacted(self) -> frozenset[int]:
        """The starts of chunks that would be rewritten."""
        return frozenset(chunk.start_ms for task in self.told.plan.tasks for chunk in task.chunks)

    @property
    def put_off(self) -> int:
        """How many chunks are worth compacting and in no task: they share segments with chunks that are left alone."""
        worth = sum(chunk.action is Action.COMPACT for chunk in self.told.plan.chunks)
        return worth - sum(chunk.action is Action.COMPACT for task in self.told.plan.tasks for chunk in task.chunks)


def preview(source: DataSource, policy: Policy, *, segments_max: int = SEGMENTS_MAX) -> Preview:
    """Plan a table under a policy, which need not be the one it has. Raises TableRefused, SnapshotRefused."""
    rules = policy_of(policy, excluded_of(source))
    segments, from_ms = _segments(source, granularity_of(policy), segments_max)
    told = forecast_plan(
        str(source), segments, rules, now_ms=dialect.clock_ms(), outputs=_outputs(source, rules, from_ms)
    )
    return Preview(told=told, segments=len(segments), from_ms=from_ms)


def _segments(
    source: DataSource, granularity: Granularity, segments_max: int
) -> tuple[Sequence[PlannedSegment], int | None]:
    newest = Segment.objects.filter(source=source, state=SegmentState.VISIBLE).order_by("-start_ms")
    cut_ms = newest.values_list("start_ms", flat=True)[segments_max : segments_max + 1].first()
    end_ms = latest_end(source)
    if cut_ms is None or end_ms is None:
        return whole_timeline(source), None
    segments, stretches = closure(source, granularity, [granularity.hull(cut_ms, end_ms)])
    return segments, stretches[0][0]


def _outputs(source: DataSource, rules: TimelinePolicy, from_ms: int | None) -> dict[int, frozenset[int]]:
    """Return what tasks left in chunks, if they would leave the same now."""
    rows = Chunk.objects.filter(source=source, outputs_fingerprint=rules.output_fingerprint())
    if from_ms is not None:
        rows = rows.filter(start_ms__gte=from_ms)
    return {start_ms: frozenset(outputs) for start_ms, outputs in rows.values_list("start_ms", "outputs") if outputs}
