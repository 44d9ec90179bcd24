"""The planner of the ``reference`` policy: jobs from flushed batches, level by level, in the order of their flush.

A plan is a walk over the queue that never changes it: the same blocks are found again by the next plan until a job that
contains them is created.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.lanes.profiles.plan.model import LevelPolicy, PlannedJob, QueuedBlock, QueueKey
from engine.schedule.job_names import job_name
from tests.reference_policy.block_queue import Batch, ReferenceQueue


class ReferencePlan:
    """One plan at one time: ``next_job`` until it returns None. Blocks are planned once."""

    def __init__(self, queue: ReferenceQueue, *, policies: dict[int, LevelPolicy], now_ms: int) -> None:
        self._queue = queue
        self._policies = policies
        self._now_ms = now_ms
        self._visited: set[tuple[QueueKey, str]] = set()
        self._jobs = self._walk()

    def next_job(self) -> PlannedJob | None:
        """Return the next job, None if no more can be made now."""
        return next(self._jobs, None)

    def _walk(self) -> Iterator[PlannedJob]:
        for level in self._queue.levels():
            policy = self._policies[level]
            for batch in self._queue.batches(level):
                while self._unvisited(batch):
                    blocks, is_forced = self._collect(batch, policy)
                    is_complete = len(blocks) >= policy.blocks_max or is_forced
                    if not is_complete:
                        break  # what was visited stays so: this plan does not come back to it
                    yield _planned(batch, blocks)

    def _collect(self, first: Batch, policy: LevelPolicy) -> tuple[list[QueuedBlock], bool]:
        """Return the blocks of a job that starts in this batch, and whether it is closed though not full."""
        blocks: list[QueuedBlock] = []
        of_key = self._queue.batches_of(first.key)
        for batch in of_key[of_key.index(first) :]:
            for block in self._unvisited(batch):
                if blocks and _is_far(block, blocks, policy.spread_ms):
                    return blocks, True
                blocks.append(block)
                self._visited.add((first.key, block.ulid))
                if len(blocks) == policy.blocks_max:
                    return blocks, False
        return blocks, self._now_ms - first.created_at_ms > policy.age_ms

    def _unvisited(self, batch: Batch) -> list[QueuedBlock]:
        return [block for block in batch.blocks() if (batch.key, block.ulid) not in self._visited]


def _is_far(block: QueuedBlock, blocks: list[QueuedBlock], spread_ms: int) -> bool:
    created = [other.created_at_ms for other in blocks]
    return block.created_at_ms > min(created) + spread_ms or block.created_at_ms < max(created) - spread_ms


def _planned(batch: Batch, blocks: list[QueuedBlock]) -> PlannedJob:
    lane, tenant, shard, level = batch.key
    return PlannedJob(
        name=job_name((block.ulid for block in blocks), tenant=tenant, shard=shard, level=level),
        queue_id=0,
        lane=lane,
        tenant=tenant,
        shard=shard,
        level=level,
        blocks=tuple(blocks),
        ready_at_ms=blocks[-1].arrived_at_ms,
    )
