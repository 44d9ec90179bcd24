"""What a policy would make of a timeline, and whether it comes to rest: the plan after it has no tasks. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.lanes.tables.plan.model import Chunk, Segment, TimelinePlan
from engine.lanes.tables.plan.plan import plan_timeline
from engine.lanes.tables.plan.policy import TimelinePolicy

_AFTER = "~"
"""Sorts behind whatever versions begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What a policy would make of a timeline now.

    ``bytes_in`` are read, and, unless rows are rolled up, about as many are written, in ``segments_out`` segments for
    ``segments_in``. ``again`` are the chunks, with the reason, that the next plan would compact again after all of
    this: there should be none.
    """

    plan: TimelinePlan
    bytes_in: int
    segments_in: int
    segments_out: int
    cost: int
    again: tuple[Chunk, ...]

    @property
    def chunks(self) -> int:
        """How many chunks would be rewritten."""
        return sum(len(task.chunks) for task in self.plan.tasks)

    @property
    def is_fix_point(self) -> bool:
        """Say whether nothing would be rewritten again."""
        return not self.again


def foresee(
    source: str,
    segments: Sequence[Segment],
    policy: TimelinePolicy,
    *,
    now_ms: int,
    outputs: Mapping[int, frozenset[int]] | None = None,
) -> Foreseen:
    """Plan a data source, do it all in thought, and plan it again. ``outputs`` are as in ``plan_timeline``.

    Raises SnapshotRefused for segments that cannot be.
    """
    plan = plan_timeline(source, segments, policy, now_ms=now_ms, outputs=outputs)
    rewritten = [chunk for task in plan.tasks for chunk in task.chunks]
    after = plan_timeline(source, done(segments, plan, policy), policy, now_ms=now_ms, outputs=outputs)
    return Foreseen(
        plan=plan,
        bytes_in=sum(chunk.bytes for chunk in rewritten),
        segments_in=len({key for task in plan.tasks for key in task.segment_keys}),
        segments_out=sum(chunk.out for chunk in rewritten),
        cost=sum(task.cost for task in plan.tasks),
        again=tuple(chunk for task in after.tasks for chunk in task.chunks),
    )


def done(segments: Sequence[Segment], plan: TimelinePlan, policy: TimelinePolicy) -> list[Segment]:
    """Return the segments of a timeline after all tasks of its plan: each chunk has what it needs at least.

    What tasks have replaced is hidden below, as it is until it is deleted.
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
    """Return folder and size of what a merge of a chunk leaves: as few as can be, about equally large."""
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
    """Return about how many bytes of a segment lie in a chunk: its rows are taken to be spread evenly."""
    start_ms, end_ms = max(segment.start_ms, chunk.start_ms), min(segment.end_ms, chunk.end_ms)
    size, length = segment.size_bytes or 0, segment.end_ms - segment.start_ms
    first, last = (size * (time_ms - segment.start_ms) // length for time_ms in (start_ms, end_ms))
    return last - first
