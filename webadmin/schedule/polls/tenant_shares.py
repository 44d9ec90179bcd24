"""Read the virtual times, limits and running jobs of lanes and tenants for a poll's snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from engine.schedule.fairness import WEIGHT_DEFAULT, LaneView, TenantView
from engine.schedule.limits import EffectiveLimits, LimitName, Scope, ScopeKind
from engine.schedule.model import LIVE_STATES, JobState
from engine.schedule.pauses import PausedScope, PauseMode
from webadmin.base.database.dialect import among, as_instance, read_rows
from webadmin.schedule.fairness_models import LaneShare, TenantShare
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import LimitChange
from webadmin.schedule.pauses import COLUMNS
from webadmin.schedule.queries import effective_limits

TENANTS_MAX = 64
"""Tenants of a lane that one poll considers, whatever its capacity; the next poll considers others."""
SHARE_COLUMNS = tuple(field.attname for field in TenantShare._meta.concrete_fields)
LANE_COLUMNS = ("id", "lane", "tenant_time", "virtual_time", "started_time")

TenantKey = tuple[str, str]
"""Lane and tenant."""


@dataclass(frozen=True, slots=True)
class CappedTenants:
    """Tenants of lanes near their caps: ``full`` ones get nothing, the next job of ``tight`` ones may not fit."""

    full: frozenset[TenantKey] = frozenset()
    tight: frozenset[TenantKey] = frozenset()


def read_shares(
    tenants: Collection[TenantKey], limits: EffectiveLimits
) -> tuple[tuple[LaneView, ...], tuple[TenantView, ...]]:
    """Return the shares of these tenants and of their lanes."""
    if not tenants:
        return (), ()
    lanes = sorted({lane for lane, _ in tenants})
    own, lane_values = among(LaneShare, "lane", lanes)
    lane_rows = [
        as_instance(LaneShare, LANE_COLUMNS, row)
        for row in read_rows(LaneShare, LANE_COLUMNS, f"WHERE {own}", lane_values)
    ]
    named, values = among(TenantShare, "tenant", sorted({tenant for _, tenant in tenants}))
    columns = ("lane", "tenant", "virtual_time")
    found = read_rows(TenantShare, columns, f"WHERE {own} AND {named}", [*lane_values, *values])
    paid = {(lane, tenant): virtual_time for lane, tenant, virtual_time in found}
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
    by_lane = {row.lane: row for row in lane_rows}
    return tuple(_lane_view(lane, by_lane.get(lane), limits) for lane in lanes), tuple(tenant_views)


def least_served_tenants(
    lane: str, paused: Iterable[PausedScope], full: Collection[TenantKey], *, tenant_max: int
) -> list[TenantShare]:
    """Return the tenants of a lane with ready work and the least virtual time, without paused and full ones."""
    places = [scope for scope in paused if scope.kind is not ScopeKind.LEVEL]
    awake = without_paused(TenantShare.objects.filter(lane=lane, is_awake=True), places, planning=True)
    return list(without_tenants(awake, full).order_by("virtual_time", "tenant")[:tenant_max])


def capped_tenants(now_ms: int, lanes: Iterable[str], ending: Sequence[Job] = ()) -> CappedTenants:
    """Return the tenants that run as many jobs or bytes as their caps allow, in any of the lanes, and those near them.

    ``ending`` are jobs whose end the poll reports: they no longer count.
    """
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
    ended_count, ended_bytes = _sum_jobs(ending)
    full, tight = set(), set()
    for key, (count, size) in running.items():
        count_max, bytes_max = _caps(limits, key)
        if 0 < count_max <= count - ended_count[key] or 0 < bytes_max <= size - ended_bytes[key]:
            full.add(key)
        elif bytes_max:
            tight.add(key)
    return CappedTenants(frozenset(full), frozenset(tight))


def without_ending(tenants: Iterable[TenantView], ending: Sequence[Job]) -> tuple[TenantView, ...]:
    """Return the tenants as they will be when these jobs have ended."""
    count, size = _sum_jobs(ending)
    return tuple(
        replace(
            view,
            running_count=max(0, view.running_count - count[view.lane, view.tenant]),
            running_bytes=max(0, view.running_bytes - size[view.lane, view.tenant]),
        )
        for view in tenants
    )


def without_paused(rows: QuerySet[Any], paused: Iterable[PausedScope], *, planning: bool) -> QuerySet[Any]:
    """Exclude the rows (of queues, jobs or tenants) that are paused; with ``planning`` drained ones too."""
    for scope in paused:
        if planning or scope.mode is PauseMode.PAUSE:
            rows = rows.none() if scope.kind is ScopeKind.GLOBAL else rows.exclude(**{COLUMNS[scope.kind]: scope.value})
    return rows


def without_tenants(rows: QuerySet[Any], tenants: Collection[TenantKey]) -> QuerySet[Any]:
    """Exclude the rows of these tenants."""
    for lane, tenant in sorted(tenants):
        rows = rows.exclude(Q(lane=lane, tenant=tenant))
    return rows


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
    """Return the maximum numbers of jobs and bytes of a tenant that may run at once; 0: no limit."""
    names = (LimitName.RUNNING_MAX, LimitName.RUNNING_BYTES_MAX)
    jobs, size = (limits.value(name, 0, tenant=key[1]) for name in names)
    return jobs, size


def _sum_jobs(jobs: Sequence[Job]) -> tuple[Counter[TenantKey], Counter[TenantKey]]:
    """Return the number of jobs and of bytes per tenant."""
    count: Counter[TenantKey] = Counter()
    size: Counter[TenantKey] = Counter()
    for job in jobs:
        count[job.lane, job.tenant] += 1
        size[job.lane, job.tenant] += job.source_bytes
    return count, size
