"""Write the virtual times of lanes and tenants. Only under the head of the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.schedule.fairness import LaneCharge, TenantCharge
from webadmin.base.database.dialect import insert_new_rows, raise_rows
from webadmin.schedule.fairness_models import LaneShare, TenantShare
from webadmin.schedule.polls.tenant_shares import TenantKey

LANE_KEY, TENANT_KEY = ("lane",), ("lane", "tenant")
LANE_TIMES = ("tenant_time", "virtual_time", "started_time")


def intern_shares(tenants: Iterable[TenantKey]) -> None:
    """Make sure that these tenants and their lanes have rows."""
    keys = sorted(set(tenants))
    if keys:
        lanes = sorted({lane for lane, _ in keys})
        insert_new_rows(LaneShare, (*LANE_KEY, *LANE_TIMES), [(lane, 0, 0, 0) for lane in lanes])
        insert_new_rows(TenantShare, (*TENANT_KEY, "virtual_time", "is_awake"), [(*key, 0, False) for key in keys])


def charge_shares(tenants: Sequence[TenantCharge], lanes: Sequence[LaneCharge]) -> None:
    """Write the new virtual times; none is ever lowered."""
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
