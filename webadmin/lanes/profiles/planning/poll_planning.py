"""Reading and planning of level queues in a poll.

A queue becomes ready by the mere passing of time. The first poll after that *notices* it: it marks the queue, and its
tenant as having ready work (``TenantShare.is_awake``). So a poll reads a bounded number of ready queues that are not
noticed yet, oldest first, and a bounded number of tenants with noticed queues, neediest first, however many tenants and
blocks there are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engine.lanes.profiles.jobs import KIND
from engine.lanes.profiles.plan.consolidation import plan_queues
from engine.schedule.fairness import LaneView, TenantView
from engine.schedule.limits import ScopeKind
from engine.schedule.model import PlannedQueue
from engine.schedule.pauses import PausedScope
from engine.schedule.queue_choice import QueueSums, choose_queues
from webadmin.base.database.dialect import as_instance, first_rows, read_rows
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.planning.level_policies import LevelPolicies
from webadmin.lanes.profiles.planning.level_queues import QUEUE_COLUMNS, QUEUED_IN
from webadmin.lanes.profiles.planning.outdated_blocks import back_off_queues, past_retention_blocks
from webadmin.lanes.profiles.planning.partial_batches import with_partial_batches
from webadmin.lanes.profiles.planning.queue_heads import BLOCK_COLUMNS, QueueHead, queued_block
from webadmin.lanes.profiles.planning.ready_marks import mark_tenants_idle
from webadmin.schedule.fairness_models import TenantShare
from webadmin.schedule.lanes import LanePlans, PlanRequest
from webadmin.schedule.polls.tenant_shares import (
    TENANTS_MAX,
    TenantKey,
    least_served_tenants,
    without_paused,
    without_tenants,
)

READY_AT = f"""
SELECT CASE WHEN EXISTS (SELECT 1 FROM schedule_tenantshare WHERE lane = '{KIND}' AND is_awake) THEN 0
            ELSE (SELECT min(ready_at_ms) FROM profiles_levelqueue WHERE block_count > 0 AND NOT is_marked_ready) END
"""  # noqa: S608
"""0 while a tenant has noticed queues, else the earliest ready time of a queue that is not noticed yet."""
_OWN_READY = "lane = %s AND tenant = %s AND block_count > 0 AND is_marked_ready AND ready_at_ms <= %s"
"""Condition for the noticed queues of a tenant, matching their partial index."""
_UNMARKED = "WHERE block_count > 0 AND NOT is_marked_ready AND ready_at_ms <= %s ORDER BY ready_at_ms, id LIMIT %s"


@dataclass(slots=True, kw_only=True)
class ProfilePlans(LanePlans):
    """Ready queues as they were read, and after ``plan`` their first blocks.

    ``noticed`` are queues found ready for the first time, by id, with their tenants; ``idle`` are tenants that were
    marked but have nothing ready; ``outdated`` are queues that contain only blocks past retention.
    """

    request: PlanRequest
    policies: LevelPolicies
    queues: list[LevelQueue]
    noticed: dict[int, TenantKey]
    idle: list[TenantKey]
    heads: tuple[QueueHead, ...] = ()
    outdated: tuple[int, ...] = ()

    def tenants(self) -> set[TenantKey]:
        return {_key(queue) for queue in self.queues}

    def plan(self, lanes: Sequence[LaneView], tenants: Sequence[TenantView]) -> tuple[PlannedQueue, ...]:
        request = self.request
        heads = self._read_heads(lanes, tenants)
        self.heads, self.outdated = past_retention_blocks(heads, wall_ms=request.wall_ms)
        queues = with_partial_batches([front.to_plan() for front in self.heads], now_ms=request.now_ms)
        return plan_queues(queues, now_ms=request.now_ms, job_max=request.job_max)

    def settle(self) -> bool:
        if self.outdated:  # they would take the places of others
            back_off_queues(self.outdated, now_ms=self.request.now_ms)
        if self.idle:
            mark_tenants_idle(self.idle)
            self.idle = []
        return bool(self.outdated)

    def _read_heads(self, lanes: Sequence[LaneView], tenants: Sequence[TenantView]) -> tuple[QueueHead, ...]:
        """Read the blocks of as many jobs as these tenants are due.

        More blocks are read, so that the sums of the queues can be computed without those of the jobs.
        """
        if not self.queues:
            return ()
        request, policies = self.request, self.policies
        policies.load(queue.tenant for queue in self.queues)
        sums = [_sums(queue, policies) for queue in self.queues]
        chosen = choose_queues(sums, lanes=lanes, tenants=tenants, now_ms=request.now_ms, job_max=request.job_max)
        due = [queue for queue in self.queues if queue.id in chosen]
        own = {queue.id: policies.of(queue.lane, queue.tenant, queue.level) for queue in due}
        keys = [((queue.id,), (chosen[queue.id] + 1) * own[queue.id].blocks_max + 1) for queue in due]
        found = first_rows(Block, BLOCK_COLUMNS, QUEUED_IN, "arrived_at_ms, ulid", keys)
        return tuple(
            QueueHead(
                queue=queue,
                policy=own[queue.id],
                blocks=tuple(queued_block(row) for row in sorted(rows, key=lambda row: (row[2], row[1]))),
                planned_max=chosen[queue.id] * own[queue.id].blocks_max,
            )
            for queue, rows in zip(due, found, strict=True)
        )


def read_plans(request: PlanRequest) -> ProfilePlans | None:
    """Return the queues of up to ``job_max`` jobs, None if there are none."""
    paused, now_ms, capped = request.paused, request.now_ms, request.capped
    if request.job_max <= 0 or any(scope.kind is ScopeKind.GLOBAL for scope in paused):
        return None
    place_max = request.job_max + len(capped.tight)  # queues that do not fit must not take the places of others
    fresh = _unmarked(paused, capped.full, now_ms=now_ms, queue_max=place_max)
    awake = least_served_tenants(KIND, paused, capped.full, tenant_max=min(place_max, TENANTS_MAX))
    queues, idle = _queues_of(awake, {_key(queue) for queue in fresh}, paused, now_ms=now_ms, job_max=request.job_max)
    if not (queues or fresh or idle):
        return None
    return ProfilePlans(
        request=request,
        policies=LevelPolicies(),
        queues=[*queues, *fresh],
        noticed={queue.id: _key(queue) for queue in fresh},
        idle=idle,
    )


def _unmarked(
    paused: Sequence[PausedScope], full: Collection[TenantKey], *, now_ms: int, queue_max: int
) -> list[LevelQueue]:
    """Return the ready queues that are not noticed yet, oldest first, without paused and full ones."""
    if not (paused or full):
        rows = read_rows(LevelQueue, QUEUE_COLUMNS, _UNMARKED, (now_ms, queue_max))
        return [as_instance(LevelQueue, QUEUE_COLUMNS, row) for row in rows]
    unmarked = LevelQueue.objects.filter(block_count__gt=0, ready_at_ms__lte=now_ms, is_marked_ready=False)
    unmarked = without_tenants(without_paused(unmarked, paused, planning=True), full)
    return list(unmarked.order_by("ready_at_ms", "id")[:queue_max])


def _queues_of(
    awake: Sequence[TenantShare],
    fresh: Collection[TenantKey],
    paused: Sequence[PausedScope],
    *,
    now_ms: int,
    job_max: int,
) -> tuple[list[LevelQueue], list[TenantKey]]:
    """Return the first ready queues of these tenants, and the tenants that have none."""
    each = 2 * job_max // max(1, len(awake)) + 1
    levels = [int(scope.value) for scope in paused if scope.kind is ScopeKind.LEVEL]
    open_levels = f" AND level NOT IN ({', '.join(['%s'] * len(levels))})" if levels else ""
    keys = [((share.lane, share.tenant, now_ms, *levels), each) for share in awake]
    found = first_rows(LevelQueue, QUEUE_COLUMNS, _OWN_READY + open_levels, "priority_ms, id", keys)
    queues: list[LevelQueue] = []
    idle: list[TenantKey] = []
    for share, rows in zip(awake, found, strict=True):
        own = [as_instance(LevelQueue, QUEUE_COLUMNS, row) for row in rows]
        queues += sorted(own, key=lambda queue: (queue.priority_ms or 0, queue.id))
        if not own and (share.lane, share.tenant) not in fresh:
            idle.append((share.lane, share.tenant))
    return queues, idle


def _sums(queue: LevelQueue, policies: LevelPolicies) -> QueueSums:
    policy = policies.of(queue.lane, queue.tenant, queue.level)
    count = min(queue.block_count, policy.blocks_max)
    size = queue.byte_count * count // queue.block_count
    return QueueSums(
        id=queue.id,
        lane=queue.lane,
        tenant=queue.tenant,
        priority_ms=queue.priority_ms or 0,
        job_count=max(1, queue.block_count // policy.blocks_max),
        job_bytes=min(size, policy.bytes_max) if policy.bytes_max else size,
    )


def _key(queue: LevelQueue) -> TenantKey:
    return (queue.lane, queue.tenant)
