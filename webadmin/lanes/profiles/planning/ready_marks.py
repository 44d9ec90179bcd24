"""Write which tenants have noticed queues (``TenantShare.is_awake``). Only under the head of the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from django.db import transaction

from webadmin.base.database.dialect import among, locked, prepared_cursor
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.schedule.command_log import take_head
from webadmin.schedule.fairness_models import TenantShare
from webadmin.schedule.polls.tenant_shares import TenantKey

_HAS_READY = """
EXISTS (SELECT 1 FROM profiles_levelqueue q WHERE q.lane = schedule_tenantshare.lane
        AND q.tenant = schedule_tenantshare.tenant AND q.is_marked_ready AND q.block_count > 0)
"""
_LANE_TIME = "COALESCE((SELECT l.tenant_time FROM schedule_laneshare l WHERE l.lane = schedule_tenantshare.lane), 0)"
_MARK_ACTIVE = f"""
UPDATE schedule_tenantshare
SET virtual_time = CASE WHEN NOT is_awake AND virtual_time < {_LANE_TIME} THEN {_LANE_TIME} ELSE virtual_time END,
    is_awake = NOT is_awake
WHERE lane = %s AND {{own}} AND is_awake <> {_HAS_READY}
"""  # noqa: S608


def mark_active_tenants(tenants: Collection[TenantKey]) -> None:
    """Mark whether these tenants have noticed queues.

    A tenant that becomes active starts at the lane's present virtual time, so that it gains no credit for idle time.
    """
    with prepared_cursor() as cursor:
        for lane, names in _by_lane(tenants).items():
            own, values = among(TenantShare, "tenant", names)
            cursor.execute(_MARK_ACTIVE.format(own=own), [lane, *values])


def mark_tenants_idle(tenants: Iterable[TenantKey]) -> None:
    """Mark tenants idle until one of their queues is noticed again.

    No entry in the log: it changes what polls read first, not the plan.
    """
    with transaction.atomic(durable=True):
        take_head()
        for lane, names in _by_lane(tenants).items():
            queues = LevelQueue.objects.filter(lane=lane, tenant__in=names, is_marked_ready=True)
            ids = list(locked(queues.order_by("id")).values_list("id", flat=True))
            LevelQueue.objects.filter(id__in=ids).update(is_marked_ready=False)
            TenantShare.objects.filter(lane=lane, tenant__in=names).update(is_awake=False)


def _by_lane(tenants: Iterable[TenantKey]) -> dict[str, list[str]]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for lane, tenant in sorted(tenants):
        names[lane].append(tenant)
    return names
