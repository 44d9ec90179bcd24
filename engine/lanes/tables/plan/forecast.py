"""Forecast the effect of a policy on a timeline, and whether it converges: the next plan has no tasks. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.lanes.tables.plan.model import Chunk, Segment, TimelinePlan
from engine.lanes.tables.plan.plan import plan_timeline
from engine.lanes.tables.plan.policy import TimelinePolicy

_AFTER = "~"
"""Sorts after all versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanForecast:
    """The effect of a policy on a timeline now.

    ``bytes_in`` are read, and about as many written unless rows are rolled up; ``segments_out`` segments replace
    ``segments_in``. ``again`` are the chunks that the next plan would compact again, with reasons: there should be
    none.
    """

    plan: TimelinePlan
    bytes_in: int
    segments_in: int
    segments_out: int
    cost: int
    again: tuple[Chunk, ...]

    @property
    def chunks(self) -> int:
        """The number of chunks that would be rewritten."""
        return sum(len(task.chunks) for task in self.plan.tasks)

    @property
    def is_fix_point(self) -> bool:
        """Return whether nothing would be rewritten again."""
        return not self.again


def forecast_plan(
    source: str,
    segments: Sequence[Segment],
    policy: TimelinePolicy,
    *,
    now_ms: int,
    outputs: Mapping[int, frozenset[int]] | None = None,
) -> PlanForecast:
    """Plan a data source, apply the plan hypothetically, and plan again. ``outputs`` are as in ``plan_timeline``.

    Raises SnapshotRefused for invalid segments.
    """
    plan = plan_timeline(source, segments, policy, now_ms=now_ms, outputs=outputs)
    rewritten = [chunk for task in plan.tasks for chunk in task.chunks]
    after = plan_timeline(source, apply_plan(segments, plan, policy), policy, now_ms=now_ms, outputs=outputs)
    return PlanForecast(
        plan=plan,
        bytes_in=sum(chunk.bytes for chunk in rewritten),
        segments_in=len({key for task in plan.tasks for key in task.segment_keys}),
        segments_out=sum(chunk.out for chunk in rewritten),
        cost=sum(task.cost for task in plan.tasks),
        again=tuple(chunk for task in after.tasks for chunk in task.chunks),
    )


def apply_plan(segments: Sequence[Segment], plan: TimelinePlan, policy: TimelinePolicy) -> list[Segment]:
    """Return the segments of a timeline after all tasks of its plan: each chunk has the minimum number of outputs.

    Replaced segments stay hidden below, as they do until they are deleted.
    """
    by_key = {one.key: one for one in segments}
    version = max((one.version for one in segments), default="") + _AFTER
    found = list(segments)
    next_key = max(by_key, default=0) + 1
    for chunk in (chunk for task in plan.tasks for chunk in task.chunks):
        left = _outputs(chunk, [by_key[key] for key in chunk.keys], policy.segment_bytes_max)
        for partition, (folder, size) in enumerate(left):
            found.append(
                Segment(
                    key=next_key + partition,
                    start_ms=chunk.start_ms,
                    end_ms=chunk.end_ms,
                    version=version,
                    partition=partition,
                    core_partitions=len(left),
                    size_bytes=size,
                    folder=folder,
                )
            )
        next_key += len(left)
    return found


def _outputs(chunk: Chunk, segments: Sequence[Segment], bytes_max: int) -> list[tuple[str, int]]:
    """Return folders and sizes of the outputs of a chunk: as few as possible, of about equal size."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for one in segments:
        if not one.is_tombstone:
            sizes[one.folder] += _share(one, chunk)
    if len(sizes) == 1:
        sizes = defaultdict(int, dict.fromkeys(sizes, chunk.bytes))
    left = []
    for folder, size in sorted(sizes.items()):
        count = max(1, -(-size // bytes_max))
        left += [(folder, size * (number + 1) // count - size * number // count) for number in range(count)]
    return left


def _share(segment: Segment, chunk: Chunk) -> int:
    """Return the estimated bytes of a segment in a chunk, assuming evenly spread rows."""
    start_ms, end_ms = max(segment.start_ms, chunk.start_ms), min(segment.end_ms, chunk.end_ms)
    size, length = segment.size_bytes or 0, segment.end_ms - segment.start_ms
    first, last = (size * (time_ms - segment.start_ms) // length for time_ms in (start_ms, end_ms))
    return last - first
