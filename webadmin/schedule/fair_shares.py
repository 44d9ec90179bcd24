"""Writes what lanes and tenants have had of the fleet, and which tenants have ready queues. Only under the head."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from django.db import transaction
from django.db.models import Exists, OuterRef, Value
from django.db.models.functions import Greatest

from engine.scheduling.fairness import LaneCharge, TenantCharge
from webadmin.database.dialect import locked, raise_rows
from webadmin.schedule.command_log import take_head
from webadmin.schedule.fairness_models import LaneShare, TenantShare
from webadmin.schedule.models import LevelQueue

TenantKey = tuple[str, str]
"""Lane and tenant."""


def intern_shares(tenants: Iterable[TenantKey]) -> None:
    """Make sure that these tenants and their lanes have rows."""
    keys = sorted(set(tenants))
    if keys:
        lanes = sorted({lane for lane, _ in keys})
        LaneShare.objects.bulk_create([LaneShare(lane=lane) for lane in lanes], ignore_conflicts=True)
        shares = [TenantShare(lane=lane, tenant=tenant) for lane, tenant in keys]
        TenantShare.objects.bulk_create(shares, ignore_conflicts=True)


def settle_awake(tenants: Collection[TenantKey]) -> None:
    """Say of these tenants whether a queue of theirs is noticed. One that wakes up starts where the lane is now: having
    been idle earns nothing."""
    if not tenants:
        return
    noticed = LevelQueue.objects.filter(
        lane=OuterRef("lane"), tenant=OuterRef("tenant"), is_noticed=True, block_count__gt=0
    )
    times = dict(LaneShare.objects.values_list("lane", "tenant_time"))
    for lane, names in _by_lane(tenants).items():
        shares = TenantShare.objects.filter(lane=lane, tenant__in=names)
        waking = shares.filter(Exists(noticed), is_awake=False)
        waking.update(is_awake=True, virtual_time=Greatest("virtual_time", Value(times.get(lane, 0))))
        shares.filter(~Exists(noticed), is_awake=True).update(is_awake=False)


def charge_shares(tenants: Sequence[TenantCharge], lanes: Sequence[LaneCharge]) -> None:
    """Write the new virtual times; none ever goes back."""
    raise_rows(
        LaneShare,
        ("lane",),
        ("tenant_time", "virtual_time", "started_time"),
        [(lane.lane, lane.tenant_time, lane.virtual_time, lane.started_time) for lane in lanes],
    )
    raise_rows(
        TenantShare,
        ("lane", "tenant"),
        ("virtual_time",),
        [(tenant.lane, tenant.tenant, tenant.virtual_time) for tenant in tenants],
    )


def rest_tenants(tenants: Iterable[TenantKey]) -> None:
    """Put tenants to sleep that have nothing a poll may plan from; their queues are noticed anew when they have.

    No entry in the log: it changes what polls look at first, not the plan.
    """
    with transaction.atomic(durable=True):
        take_head()
        for lane, names in _by_lane(tenants).items():
            queues = LevelQueue.objects.filter(lane=lane, tenant__in=names, is_noticed=True)
            ids = list(locked(queues.order_by("id")).values_list("id", flat=True))
            LevelQueue.objects.filter(id__in=ids).update(is_noticed=False)
            TenantShare.objects.filter(lane=lane, tenant__in=names).update(is_awake=False)


def _by_lane(tenants: Iterable[TenantKey]) -> dict[str, list[str]]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for lane, tenant in sorted(tenants):
        names[lane].append(tenant)
    return names
