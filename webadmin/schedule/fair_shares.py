"""Writes what lanes and tenants have had of the fleet, and which tenants have ready queues. Only under the head."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from django.db import transaction

from engine.schedule.fairness import LaneCharge, TenantCharge
from webadmin.base.database.dialect import among, insert_new_rows, locked, quick_cursor, raise_rows
from webadmin.schedule.command_log import take_head
from webadmin.schedule.fairness_models import LaneShare, TenantShare
from webadmin.schedule.models import LevelQueue

TenantKey = tuple[str, str]
"""Lane and tenant."""
LANE_KEY, TENANT_KEY = ("lane",), ("lane", "tenant")
LANE_TIMES = ("tenant_time", "virtual_time", "started_time")

_HAS_NOTICED = """
EXISTS (SELECT 1 FROM schedule_levelqueue q WHERE q.lane = schedule_tenantshare.lane
        AND q.tenant = schedule_tenantshare.tenant AND q.is_noticed AND q.block_count > 0)
"""
_SINCE = "COALESCE((SELECT l.tenant_time FROM schedule_laneshare l WHERE l.lane = schedule_tenantshare.lane), 0)"
_SETTLE_AWAKE = f"""
UPDATE schedule_tenantshare
SET virtual_time = CASE WHEN NOT is_awake AND virtual_time < {_SINCE} THEN {_SINCE} ELSE virtual_time END,
    is_awake = NOT is_awake
WHERE lane = %s AND {{own}} AND is_awake <> {_HAS_NOTICED}
"""  # noqa: S608


def intern_shares(tenants: Iterable[TenantKey], *, known: Iterable[TenantCharge] = ()) -> None:
    """Make sure that these tenants and their lanes have rows; those that were charged do."""
    keys = sorted(set(tenants) - {(charge.lane, charge.tenant) for charge in known})
    if keys:
        lanes = sorted({lane for lane, _ in keys})
        insert_new_rows(LaneShare, (*LANE_KEY, *LANE_TIMES), [(lane, 0, 0, 0) for lane in lanes])
        insert_new_rows(TenantShare, (*TENANT_KEY, "virtual_time", "is_awake"), [(*key, 0, False) for key in keys])


def settle_awake(tenants: Collection[TenantKey]) -> None:
    """Say of these tenants whether a queue of theirs is noticed. One that wakes up starts where the lane is now: having
    been idle earns nothing."""
    if not tenants:
        return
    with quick_cursor() as cursor:
        for lane, names in _by_lane(tenants).items():
            own, values = among(TenantShare, "tenant", names)
            cursor.execute(_SETTLE_AWAKE.format(own=own), [lane, *values])


def charge_shares(tenants: Sequence[TenantCharge], lanes: Sequence[LaneCharge]) -> None:
    """Write the new virtual times; none ever goes back."""
    raise_rows(
        LaneShare,
        LANE_KEY,
        LANE_TIMES,
        [(lane.lane, lane.tenant_time, lane.virtual_time, lane.started_time) for lane in lanes],
    )
    raise_rows(
        TenantShare,
        TENANT_KEY,
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
