"""Writes of one command to profile blocks: assigned to jobs, replaced by results; and the sums of their queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.lanes.profiles.jobs import KIND
from engine.lanes.profiles.plan.model import PlannedJob
from engine.schedule.model import PlannedWork
from webadmin.base.database.dialect import update_rows
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.planning.level_policies import LevelPolicies
from webadmin.lanes.profiles.planning.level_queues import QueueChanges, settle_queues
from webadmin.lanes.profiles.planning.queue_heads import QueueHead
from webadmin.lanes.profiles.planning.ready_marks import mark_active_tenants
from webadmin.lanes.profiles.services.insert_blocks import InsertMoment, InternedNames
from webadmin.lanes.profiles.services.replace_blocks import Replacement, replace_blocks
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.errors import StaleSnapshot
from webadmin.schedule.lanes import Lane, LaneWrite, SwapMoment, lane_write
from webadmin.schedule.models import Limits
from webadmin.schedule.polls.fair_shares import intern_shares
from webadmin.schedule.polls.tenant_shares import TenantKey
from webadmin.schedule.services.operation import Operation


class ProfilesWrite(LaneWrite):
    """The writes of one command. ``heads`` and ``noticed`` were read by a poll; None for other commands."""

    def __init__(
        self,
        lane: Lane,
        *,
        policies: LevelPolicies | None = None,
        heads: Sequence[QueueHead] = (),
        noticed: Mapping[int, TenantKey] | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(lane)
        self.changes = QueueChanges()
        self._policies = policies or LevelPolicies()
        self._heads = heads
        self._noticed = noticed
        self._limits = limits
        self._taken: list[int] = []
        self._found_count = 0

    def take_sources(self, planned: Sequence[tuple[int, PlannedWork]]) -> None:
        parts = [(job_id, part) for job_id, plan in planned for part in _profile_job(plan).taken()]
        # In sorted order, so that two polls with the same blocks never deadlock.
        taken = sorted((block.id, part.queue_id, job_id) for job_id, part in parts for block in part.blocks)
        for _, part in parts:
            self.changes.add(part.queue_id, -len(part.blocks), -sum(block.size_bytes for block in part.blocks))
        owned, queued = {"state": BlockState.OWNED.value, "queue_id": None}, {"state": BlockState.QUEUED.value}
        self._found_count = update_rows(Block, ("id", "queue_id"), ("owner_job_id",), taken, to=owned, where=queued)
        self._taken = [block_id for block_id, _, _ in taken]

    def check_sources(self) -> None:
        if self._found_count != len(self._taken):
            raise StaleSnapshot("blocks of a planned job are gone from their queue")

    def job_spec(self, plan: PlannedWork) -> dict[str, Any]:
        job = _profile_job(plan)
        assert self._limits is not None, "jobs are planned within limits"
        moved = job.source_shards()
        spec: dict[str, Any] = {
            "sources": [block.ulid for block in job.blocks],
            "task_memory_bytes": self._limits.task_memory_bytes,
            "result_bytes_max": self._policies.of(job.lane, job.tenant, job.level).result_bytes_max,
        }
        return spec | ({"source_shards": moved} if moved else {})

    def swap(self, swaps: Sequence[Replacement], prepared: InternedNames, moment: SwapMoment) -> None:
        replace_blocks(
            swaps,
            prepared,
            # The registrations record which delete requests their merges applied; the moment adds none.
            InsertMoment(command_index=moment.command_index, command_time_ms=moment.command_time_ms, masks_applied=0),
            eligible_at_ms=moment.eligible_at_ms,
            changes=self.changes,
        )

    def finish(self, now_ms: int) -> None:
        """Update the sums of the queues; in a poll, queues that lost blocks were served."""
        noticed, taken = self._noticed or {}, frozenset(self._taken)
        turned = settle_queues(
            self.changes,
            self._policies,
            served_at_ms=None if self._noticed is None else now_ms,
            noticed=noticed.keys(),
            heads={front.queue.id: front.without(taken) for front in self._heads},
        )
        intern_shares(noticed.values())
        mark_active_tenants(turned)


def queue_changes(run: Operation) -> QueueChanges:
    """Return the object that collects an operation's changes of level queues."""
    write = lane_write(run, KIND)
    assert isinstance(write, ProfilesWrite)
    return write.changes


def _profile_job(plan: PlannedWork) -> PlannedJob:
    assert isinstance(plan, PlannedJob), "the lane plans its own jobs"
    return plan
