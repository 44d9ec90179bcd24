"""Reads the part of a poll's snapshot that new jobs are planned from: the neediest tenants and their ready queues.

A queue becomes ready by the mere passing of time. The first poll after that *notices* it: marks the queue, and its
tenant as awake. So a poll reads a bounded number of queues that nobody has noticed, oldest first, and a bounded number
of awake tenants, neediest first, however many tenants and blocks there are.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, QueuedBlock
from engine.schedule.fairness import WEIGHT_DEFAULT, LaneView, TenantView
from engine.schedule.limits import EffectiveLimits, LimitName, Scope, ScopeKind
from engine.schedule.model import LIVE_STATES, JobState
from engine.schedule.pauses import PausedScope, PauseMode
from engine.schedule.queue_choice import QueueSums, choose_queues
from webadmin.base.database.columns import rows_column
from webadmin.base.database.dialect import among, as_instance, ask, first_rows, read_rows
from webadmin.lanes.profiles.models import Block
from webadmin.schedule.fairness_models import LaneShare, TenantShare
from webadmin.schedule.lanes import lanes as all_lanes
from webadmin.schedule.level_policies import COLUMNS as POLICY_COLUMNS
from webadmin.schedule.level_policies import EVERYBODY, LevelPolicies
from webadmin.schedule.level_queues import QUEUE_COLUMNS, QUEUED_IN, Front
from webadmin.schedule.models import Job, LevelQueue
from webadmin.schedule.operation_models import LimitChange
from webadmin.schedule.pauses import COLUMNS
from webadmin.schedule.poll_opening import PollOpening
from webadmin.schedule.queries import effective_limits

TENANTS_MAX = 64
"""Tenants that one poll looks at in a lane, however much it could take: the next one looks at others."""

SHARE_COLUMNS = tuple(field.attname for field in TenantShare._meta.concrete_fields)
LANE_COLUMNS = ("id", "lane", "tenant_time", "virtual_time", "started_time")
BLOCK_COLUMNS = ("id", "ulid", "arrived_at_ms", "created_at_ms", "size_bytes")
_NEEDIEST = """
SELECT * FROM (SELECT * FROM schedule_tenantshare WHERE lane = '{}' AND is_awake
               ORDER BY virtual_time, tenant LIMIT %s) AS own
"""
OWN_READY = "lane = %s AND tenant = %s AND block_count > 0 AND is_noticed AND ready_at_ms <= %s"
"""The noticed queues of a tenant, in the words of their partial index."""

UNNOTICED = "WHERE block_count > 0 AND NOT is_noticed AND ready_at_ms <= %s ORDER BY ready_at_ms, id LIMIT %s"

TenantKey = tuple[str, str]
"""Lane and tenant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFront:
    """A queue whose turn it is, as it was read, with its oldest blocks in order: ``planned_max`` of them are for jobs
    of this poll, the others say what the queue's sums are without those. ``kept_out`` are those that are dropped soon,
    by row id; if these are all, ``behind`` are blocks that come later."""

    queue: LevelQueue
    policy: LevelPolicy
    blocks: tuple[QueuedBlock, ...]
    planned_max: int
    kept_out: frozenset[int] = frozenset()
    behind: tuple[QueuedBlock, ...] = ()

    def to_plan(self) -> BlockQueue:
        """Return what jobs are planned from."""
        queue = self.queue
        blocks = self.blocks
        if self.kept_out:
            blocks = self.behind or tuple(block for block in blocks if block.id not in self.kept_out)
        return BlockQueue(
            id=queue.id,
            lane=queue.lane,
            tenant=queue.tenant,
            shard=queue.shard,
            level=queue.level,
            policy=self.policy,
            blocks=blocks[: self.planned_max],
            is_whole=len(blocks) <= self.planned_max,
            served_at_ms=queue.served_at_ms,
        )

    def without(self, taken: Collection[int]) -> Front:
        """Return what is left when these blocks, by row id, are gone."""
        rows = [(block.arrived_at_ms, block.size_bytes) for block in self.blocks if block.id not in taken]
        return Front(
            block_count=self.queue.block_count,
            byte_count=self.queue.byte_count,
            newest_arrival_ms=self.queue.newest_arrival_ms,
            taken_count=len(self.blocks) - len(rows),
            rows=rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyQueues:
    """Queues that jobs could be planned from, without their blocks. ``noticed`` are those found ready for the first
    time, by id, with their tenants; ``asleep`` are awake tenants that turned out to have nothing ready. ``lanes`` are
    the rows of all lanes, ``shares`` those of the awake tenants."""

    queues: tuple[LevelQueue, ...] = ()
    noticed: dict[int, TenantKey] = field(default_factory=dict)
    asleep: tuple[TenantKey, ...] = ()
    lanes: dict[str, LaneShare] = field(default_factory=dict)
    shares: dict[TenantKey, TenantShare] = field(default_factory=dict)

    def tenants(self) -> set[TenantKey]:
        """Return the tenants of the queues."""
        return {_key(queue) for queue in self.queues}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningRules:
    """When the levels' blocks make a job; and for who plans what the lanes have had so far, and the awake tenants that
    have had least while nothing is paused or capped."""

    policies: LevelPolicies
    lanes: dict[str, LaneShare] = field(default_factory=dict)
    neediest: Sequence[TenantShare] = ()


def ask_rules(job_max: int) -> Callable[[PollOpening], PlanningRules]:
    """Ask for what planning up to ``job_max`` jobs goes by; for 0 only for what completing jobs needs."""
    most = [min(job_max, TENANTS_MAX)] * len(all_lanes()) if job_max else []
    asked = ask(_rules(is_planning=job_max > 0), most)

    def answer(opening: PollOpening) -> PlanningRules:
        policies, *shares = (json.loads(column) for column in asked()[0])
        lanes, neediest = shares or ((), ())
        awake = [as_instance(TenantShare, SHARE_COLUMNS, row) for row in neediest]
        return PlanningRules(
            policies=LevelPolicies(policies, has_others=opening.has_own_policies),
            lanes={row[1]: as_instance(LaneShare, LANE_COLUMNS, row) for row in lanes},
            neediest=sorted(awake, key=lambda share: (share.lane, share.virtual_time, share.tenant)),
        )

    return answer


@functools.cache
def _rules(*, is_planning: bool) -> str:
    """Return the statement that reads the policies of everybody and, for planning, the lanes and the awake tenants of
    each that have had least; a mark for each lane says how many."""
    columns = [rows_column(POLICY_COLUMNS, f"SELECT * FROM schedule_levelpolicy WHERE tenant = '{EVERYBODY}'")]  # noqa: S608
    if is_planning:
        columns.append(rows_column(LANE_COLUMNS, "SELECT * FROM schedule_laneshare"))
        columns.append(
            rows_column(SHARE_COLUMNS, " UNION ALL ".join(_NEEDIEST.format(lane.name) for lane in all_lanes()))
        )
    return f"SELECT {', '.join(columns)}"


def read_ready(opening: PollOpening, rules: PlanningRules, *, job_max: int, ending: Sequence[Job] = ()) -> ReadyQueues:
    """Return the queues that up to ``job_max`` jobs may come from. ``ending`` are the jobs whose end this poll reports:
    they no longer count against caps."""
    paused, now_ms, lanes = opening.paused, opening.time.now_ms, rules.lanes
    if job_max <= 0:
        return ReadyQueues()
    if any(scope.kind is ScopeKind.GLOBAL for scope in paused):
        return ReadyQueues(lanes=lanes)
    capped = capped_tenants(now_ms, lanes, ending) if opening.has_own_limits else CappedTenants()
    # What does not fit must not take the places of others.
    place_max = job_max + len(capped.tight)
    fresh: list[LevelQueue] = []
    if opening.has_unnoticed:
        fresh += _unnoticed(paused, capped.full, now_ms=now_ms, queue_max=place_max)
    tenant_max = min(place_max, TENANTS_MAX)
    awake: Sequence[TenantShare] = ()
    if opening.has_awake:
        is_free = not (paused or capped.full or capped.tight)
        awake = rules.neediest if is_free else _neediest(paused, capped.full, lanes, tenant_max=tenant_max)
    queues, asleep = _queues_of(awake, {_key(queue) for queue in fresh}, paused, now_ms=now_ms, job_max=job_max)
    return ReadyQueues(
        queues=(*queues, *fresh),
        noticed={queue.id: _key(queue) for queue in fresh},
        asleep=tuple(asleep),
        lanes=lanes,
        shares={(row.lane, row.tenant): row for row in awake},
    )


def read_shares(
    tenants: Collection[TenantKey], ready: ReadyQueues, limits: EffectiveLimits
) -> tuple[tuple[LaneView, ...], tuple[TenantView, ...]]:
    """Return what these tenants and their lanes have had, may have, and have at the moment."""
    lanes = sorted({lane for lane, _ in tenants})
    rows = list(ready.shares.values())
    if others := {tenant for tenant in tenants if tenant not in ready.shares}:
        own, lane_values = among(TenantShare, "lane", lanes)
        named, values = among(TenantShare, "tenant", sorted({tenant for _, tenant in others}))
        found = read_rows(TenantShare, SHARE_COLUMNS, f"WHERE {own} AND {named}", [*lane_values, *values])
        rows += [as_instance(TenantShare, SHARE_COLUMNS, row) for row in found]
    paid = {(row.lane, row.tenant): row.virtual_time for row in rows}
    running = _running([key for key in tenants if any(_caps(limits, key))])
    tenant_views = []
    for key in sorted(tenants):
        running_max, running_bytes_max = _caps(limits, key)
        count, size = running.get(key, (0, 0))
        tenant_views.append(
            TenantView(
                lane=key[0],
                tenant=key[1],
                weight=limits.value(LimitName.WEIGHT, WEIGHT_DEFAULT, tenant=key[1]),
                virtual_time=paid.get(key, 0),
                running_count=count,
                running_max=running_max,
                running_bytes=size,
                running_bytes_max=running_bytes_max,
            )
        )
    return tuple(_lane_view(lane, ready.lanes.get(lane), limits) for lane in lanes), tuple(tenant_views)


def read_blocks(
    queues: Sequence[LevelQueue],
    policies: LevelPolicies,
    shares: tuple[Sequence[LaneView], Sequence[TenantView]],
    *,
    now_ms: int,
    job_max: int,
) -> tuple[QueueFront, ...]:
    """Read the blocks of as many jobs as these tenants are due, from the queues whose turn it is; and so many more that
    the queues' sums are known when those are gone."""
    if not queues:
        return ()
    policies.load(queue.tenant for queue in queues)
    sums = [_sums(queue, policies) for queue in queues]
    chosen = choose_queues(sums, lanes=shares[0], tenants=shares[1], now_ms=now_ms, job_max=job_max)
    turns = [queue for queue in queues if queue.id in chosen]
    blocks_max = {queue.id: policies.of(queue.lane, queue.tenant, queue.level).blocks_max for queue in turns}
    keys = [((queue.id,), (chosen[queue.id] + 1) * blocks_max[queue.id] + 1) for queue in turns]
    found = first_rows(Block, BLOCK_COLUMNS, QUEUED_IN, "arrived_at_ms, ulid", keys)
    return tuple(
        QueueFront(
            queue=queue,
            policy=policies.of(queue.lane, queue.tenant, queue.level),
            blocks=tuple(queued_block(row) for row in sorted(rows, key=lambda row: (row[2], row[1]))),
            planned_max=chosen[queue.id] * blocks_max[queue.id],
        )
        for queue, rows in zip(turns, found, strict=True)
    )


def queued_block(row: Sequence[Any]) -> QueuedBlock:
    """Return the block of a row of ``BLOCK_COLUMNS``."""
    id, ulid, arrived_at_ms, created_at_ms, size_bytes = row
    return QueuedBlock(
        id=id, ulid=ulid, arrived_at_ms=arrived_at_ms, created_at_ms=created_at_ms, size_bytes=size_bytes
    )


def without_paused(rows: QuerySet, paused: Iterable[PausedScope], *, planning: bool) -> QuerySet:
    """Leave out the rows (of queues, jobs or tenants) that stand still."""
    for scope in paused:
        if planning or scope.mode is PauseMode.PAUSE:
            rows = rows.none() if scope.kind is ScopeKind.GLOBAL else rows.exclude(**{COLUMNS[scope.kind]: scope.value})
    return rows


def without_ending(tenants: Iterable[TenantView], ending: Sequence[Job]) -> tuple[TenantView, ...]:
    """Return the tenants as they will be when these jobs have ended."""
    count, size = _ended(ending)
    return tuple(
        replace(
            view,
            running_count=max(0, view.running_count - count[view.lane, view.tenant]),
            running_bytes=max(0, view.running_bytes - size[view.lane, view.tenant]),
        )
        for view in tenants
    )


@dataclass(frozen=True, slots=True)
class CappedTenants:
    """Tenants of lanes whose caps matter now: ``full`` ones get nothing, the next job of ``tight`` ones may not fit."""

    full: frozenset[TenantKey] = frozenset()
    tight: frozenset[TenantKey] = frozenset()


def capped_tenants(now_ms: int, lanes: Iterable[str], ending: Sequence[Job] = ()) -> CappedTenants:
    """Return the tenants that run as many jobs or bytes as they may, in any lane, and those that are near it."""
    changes = LimitChange.objects.filter(
        name__in=(LimitName.RUNNING_MAX, LimitName.RUNNING_BYTES_MAX),
        scope_kind=ScopeKind.TENANT,
        is_superseded=False,
    )
    tenants = set(changes.order_by().values_list("scope_value", flat=True))
    if not tenants:
        return CappedTenants()
    limits = effective_limits(now_ms, tenants=tenants)
    running = _running([(lane, tenant) for lane in lanes for tenant in tenants])
    ended_count, ended_bytes = _ended(ending)
    full, tight = set(), set()
    for key, (count, size) in running.items():
        count_max, bytes_max = _caps(limits, key)
        if 0 < count_max <= count - ended_count[key] or 0 < bytes_max <= size - ended_bytes[key]:
            full.add(key)
        elif bytes_max:
            tight.add(key)
    return CappedTenants(frozenset(full), frozenset(tight))


def _ended(jobs: Sequence[Job]) -> tuple[Counter[TenantKey], Counter[TenantKey]]:
    """Return how many of these jobs each tenant has, and how many bytes."""
    count: Counter[TenantKey] = Counter()
    size: Counter[TenantKey] = Counter()
    for job in jobs:
        count[job.lane, job.tenant] += 1
        size[job.lane, job.tenant] += job.source_bytes
    return count, size


def _unnoticed(
    paused: Sequence[PausedScope], full: Collection[TenantKey], *, now_ms: int, queue_max: int
) -> list[LevelQueue]:
    """Return the ready queues that nobody has noticed, oldest first, but those that stand still."""
    if not (paused or full):
        rows = read_rows(LevelQueue, QUEUE_COLUMNS, UNNOTICED, (now_ms, queue_max))
        return [as_instance(LevelQueue, QUEUE_COLUMNS, row) for row in rows]
    unnoticed = LevelQueue.objects.filter(block_count__gt=0, ready_at_ms__lte=now_ms, is_noticed=False)
    unnoticed = _without(without_paused(unnoticed, paused, planning=True), full)
    return list(unnoticed.order_by("ready_at_ms", "id")[:queue_max])


def _neediest(
    paused: Iterable[PausedScope], full: Collection[TenantKey], lanes: Iterable[str], *, tenant_max: int
) -> list[TenantShare]:
    """Return the awake tenants of each lane that have had least, but those that stand still."""
    places = [scope for scope in paused if scope.kind is not ScopeKind.LEVEL]
    awake = _without(without_paused(TenantShare.objects.filter(is_awake=True), places, planning=True), full)
    found: list[TenantShare] = []
    for lane in sorted(lanes):
        found += awake.filter(lane=lane).order_by("virtual_time", "tenant")[:tenant_max]
    return found


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
    running = f" AND level NOT IN ({', '.join(['%s'] * len(levels))})" if levels else ""
    keys = [((share.lane, share.tenant, now_ms, *levels), each) for share in awake]
    found = first_rows(LevelQueue, QUEUE_COLUMNS, OWN_READY + running, "priority_ms, id", keys)
    queues: list[LevelQueue] = []
    asleep: list[TenantKey] = []
    for share, rows in zip(awake, found, strict=True):
        own = [as_instance(LevelQueue, QUEUE_COLUMNS, row) for row in rows]
        queues += sorted(own, key=lambda queue: (queue.priority_ms or 0, queue.id))
        if not own and (share.lane, share.tenant) not in fresh:
            asleep.append((share.lane, share.tenant))
    return queues, asleep


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


def _lane_view(lane: str, row: LaneShare | None, limits: EffectiveLimits) -> LaneView:
    row = row or LaneShare(lane=lane)
    running_max = limits.value(LimitName.RUNNING_MAX, 0, lane=lane)
    running_bytes_max = limits.value(LimitName.RUNNING_BYTES_MAX, 0, lane=lane)
    queue_max = limits.values.get((LimitName.QUEUE_MAX, Scope(ScopeKind.LANE, lane)), 0)
    running = {"count": 0, "bytes": 0}
    if running_max or running_bytes_max:
        leased = Job.objects.filter(state=JobState.LEASED, lane=lane)
        running = leased.aggregate(count=Count("id"), bytes=Sum("source_bytes", default=0))
    return LaneView(
        lane=lane,
        weight=limits.value(LimitName.WEIGHT, WEIGHT_DEFAULT, lane=lane),
        tenant_time=row.tenant_time,
        virtual_time=row.virtual_time,
        started_time=row.started_time,
        running_count=running["count"],
        running_max=running_max,
        running_bytes=running["bytes"],
        running_bytes_max=running_bytes_max,
        live_job_count=Job.objects.filter(state__in=LIVE_STATES, lane=lane).count() if queue_max else 0,
        queue_max=queue_max,
    )


def _running(tenants: Collection[TenantKey]) -> dict[TenantKey, tuple[int, int]]:
    """Return how many jobs and bytes of these tenants run."""
    if not tenants:
        return {}
    leased = Job.objects.filter(state=JobState.LEASED, tenant__in={tenant for _, tenant in tenants}).order_by()
    counted = leased.values_list("lane", "tenant").annotate(count=Count("id"), bytes=Sum("source_bytes"))
    return {(lane, tenant): (count, size) for lane, tenant, count, size in counted}


def _caps(limits: EffectiveLimits, key: TenantKey) -> tuple[int, int]:
    """Return how many jobs and how many bytes of a tenant may run at once; 0: any."""
    names = (LimitName.RUNNING_MAX, LimitName.RUNNING_BYTES_MAX)
    jobs, size = (limits.value(name, 0, tenant=key[1]) for name in names)
    return jobs, size


def _without(rows: QuerySet, tenants: Collection[TenantKey]) -> QuerySet:
    """Leave out these tenants."""
    for lane, tenant in sorted(tenants):
        rows = rows.exclude(Q(lane=lane, tenant=tenant))
    return rows


def _key(queue: LevelQueue) -> TenantKey:
    return (queue.lane, queue.tenant)
