"""Preview of a table's plan under a policy, and whether repeated compaction ends. Nothing is changed."""

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
"""Number of newest segments that are planned, with all segments of the chunks they touch; older ones are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Result of a preview. ``from_ms`` is the start of the part that was planned, None if it is the whole timeline."""

    forecast: PlanForecast
    segments: int
    from_ms: int | None

    @property
    def compacted(self) -> frozenset[int]:
        """Return the starts of chunks that would be rewritten."""
        return frozenset(chunk.start_ms for task in self.forecast.plan.tasks for chunk in task.chunks)

    @property
    def put_off(self) -> int:
        """Return the number of chunks worth compacting that no task of the plan has.

        They share segments with chunks that are not compacted.
        """
        worth = sum(chunk.action is Action.COMPACT for chunk in self.forecast.plan.chunks)
        return worth - sum(chunk.action is Action.COMPACT for task in self.forecast.plan.tasks for chunk in task.chunks)


def preview(source: DataSource, policy: Policy, *, segments_max: int = SEGMENTS_MAX) -> Preview:
    """Return the plan of a table under ``policy``, which may differ from its own.

    Raises TableRefused, SnapshotRefused.
    """
    rules = policy_of(policy, excluded_of(source))
    segments, from_ms = _segments(source, granularity_of(policy), segments_max)
    forecast = forecast_plan(
        str(source), segments, rules, now_ms=dialect.clock_ms(), outputs=_outputs(source, rules, from_ms)
    )
    return Preview(forecast=forecast, segments=len(segments), from_ms=from_ms)


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
    """Return the outputs of tasks by chunk, where the policy would produce outputs of the same form."""
    rows = Chunk.objects.filter(source=source, outputs_fingerprint=rules.output_fingerprint())
    if from_ms is not None:
        rows = rows.filter(start_ms__gte=from_ms)
    return {start_ms: frozenset(outputs) for start_ms, outputs in rows.values_list("start_ms", "outputs") if outputs}
