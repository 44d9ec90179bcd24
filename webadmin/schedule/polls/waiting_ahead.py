"""Read waiting jobs of lanes that plan ahead: many may wait, of many tenants, and not each is for every worker.

Only the first few jobs of each of the tenants with the least virtual time are read: neither a tenant with many jobs,
nor one whose jobs are reserved for other workers, hides the others. The number of rows is bounded by the offered
capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from django.db.models import BigIntegerField, F, OuterRef, QuerySet, Subquery, Window
from django.db.models.functions import Coalesce, RowNumber

from webadmin.schedule.fairness_models import TenantShare
from webadmin.schedule.lanes import Offer, lane_of, lanes
from webadmin.schedule.models import Job, Worker
from webadmin.schedule.operator_queries import polling_workers
from webadmin.schedule.polls.opening import PollOpening
from webadmin.schedule.polls.tenant_shares import TENANTS_MAX

OTHERS = 4
"""The factor by which more jobs and tenants are read than a worker could take: some may be offered to others first."""


def lanes_ahead() -> list[str]:
    """Return the lanes whose jobs are created before a worker polls."""
    return [lane.name for lane in lanes() if lane.plans_ahead]


def waiting_ahead(waiting: QuerySet[Job], worker: str, opening: PollOpening, count: int) -> list[Job]:
    """Return the jobs that this worker may take now, out of ``waiting``; at most ``count`` of each tenant."""
    at = datetime.fromtimestamp(opening.time.wall_ms / 1000, UTC)
    there = polling_workers(Worker.objects.all(), at).values_list("name", flat=True)
    offer = Offer(
        worker=worker,
        workers=frozenset({worker, *there}),
        now_ms=opening.time.now_ms,
        lease_ms=opening.limits.lease_seconds * 1000,
    )
    found: list[Job] = []
    for name in lanes_ahead():
        own = waiting.filter(lane=name)
        tenants = _least_served(own, name, min(TENANTS_MAX, count * OTHERS))
        first = _first_of_tenants(own, tenants, count)
        taken: dict[str, int] = {}
        for job in lane_of(name).offered(first, offer):
            taken[job.tenant] = taken.get(job.tenant, 0) + 1
            if taken[job.tenant] <= count:
                found.append(job)
    return found


def _least_served(jobs: QuerySet[Job], lane: str, count: int) -> list[str]:
    """Return the tenants with waiting jobs and the least virtual time."""
    paid = TenantShare.objects.filter(lane=lane, tenant=OuterRef("tenant")).values("virtual_time")[:1]
    tenants = jobs.order_by().values("tenant").distinct()
    tenants = tenants.annotate(paid=Coalesce(Subquery(paid), 0, output_field=BigIntegerField()))
    return [row["tenant"] for row in tenants.order_by("paid", "tenant")[:count]]


def _first_of_tenants(jobs: QuerySet[Job], tenants: Sequence[str], count: int) -> list[Job]:
    """Return the first jobs of each tenant: in all ``OTHERS`` times as many as wanted, and at least so many of each.

    Only ids are ranked: specifications are long, and read only for the jobs that may be taken.
    """
    each = max(OTHERS, -(-count * OTHERS // max(len(tenants), 1)))
    place = Window(RowNumber(), partition_by=[F("tenant")], order_by=["priority_ms", "name"])
    placed = jobs.filter(tenant__in=tenants).order_by().annotate(place=place).filter(place__lte=each)
    return list(Job.objects.filter(id__in=list(placed.values_list("id", flat=True))).order_by("priority_ms", "name"))
