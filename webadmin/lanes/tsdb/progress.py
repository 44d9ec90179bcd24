"""Compaction progress of buckets by tenant and interval, with the expected time to catch up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Count, Min, Q, Sum

from engine.schedule.model import JobState
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import Block, BucketTenant, Group, OutboxStep
from webadmin.lanes.tsdb.states import PLANNABLE, GroupState

RATE_WINDOW_MS = 3_600_000
"""Window over which finished groups are counted for the expected time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantProgress:
    """Compaction progress of one tenant.

    ``blocks`` is the number of blocks that readers need; ``waiting`` of them are still to be merged, by ``compactions``
    merges. ``seconds`` is the expected time at the rate of the last hour, None without a rate. ``rechecked_at_ms`` is
    when time alone makes more blocks plannable, None if only new blocks can. Where the bucket does not allow
    partitions, ``too_large`` is the number of groups that would have to be split and are not planned, and ``parts`` the
    number of published blocks that are partitions of a group.
    """

    tenant_id: int
    bucket: str
    tenant: str
    blocks: int
    bytes: int
    waiting: int
    compactions: int
    jobs_waiting: int
    jobs_running: int
    jobs_parked: int
    quarantined: int
    to_write: int
    too_large: int
    parts: int
    seconds: float | None
    refusal: str
    is_planned: bool
    rechecked_at_ms: int | None

    @property
    def is_idle(self) -> bool:
        """Return whether nothing runs, waits for a worker, or is to be planned or written now."""
        return self.is_planned and not (self.jobs_waiting or self.jobs_running or self.to_write)

    @property
    def is_done(self) -> bool:
        """Return whether there is no work at present."""
        return self.is_idle and not (self.compactions or self.refusal)

    @property
    def is_stuck(self) -> bool:
        """Return whether the remaining work needs an operator: its jobs are parked and there is no other work."""
        return self.is_idle and self.jobs_parked > 0

    def to_json(self) -> dict[str, Any]:
        """Return the progress in the form that command and API show."""
        return asdict(self) | {"is_done": self.is_done, "is_stuck": self.is_stuck}


def tenant_progress(bucket_id: int | None = None, *, tenant_ids: Sequence[int] | None = None) -> list[TenantProgress]:
    """Return the progress of each tenant, optionally of one bucket or of ``tenant_ids`` only.

    Uses a fixed number of queries.
    """
    tenants = BucketTenant.objects.select_related("bucket").order_by("bucket__name", "name")
    if bucket_id is not None:
        tenants = tenants.filter(bucket=bucket_id)
    if tenant_ids is not None:
        tenants = tenants.filter(id__in=tenant_ids)
    live = Q(state__in=PLANNABLE)
    blocks = _by_tenant(
        Block.objects.filter(live, tenant__in=tenants),
        count=Count("id"),
        size=Sum("size_bytes"),
        bad=Count("id", filter=~Q(quarantined="")),
    )
    jobs: dict[tuple[int, str], int] = {
        (row["tenant_id"], row["parts__job__state"]): row["count"]
        for row in Group.objects.filter(state=GroupState.OPEN, tenant__in=tenants)
        .order_by()
        .values("tenant_id", "parts__job__state")
        .annotate(count=Count("parts"))
    }
    steps = _by_tenant(OutboxStep.objects.filter(done_at_ms=None, tenant__in=tenants), count=Count("id"))
    found = []
    now_ms, rates = dialect.clock_ms(), _rates(tenants)
    for tenant in tenants:
        own = blocks.get(tenant.id, {"count": 0, "size": 0, "bad": 0})
        rate = rates.get(tenant.id)
        found.append(
            TenantProgress(
                tenant_id=tenant.id,
                bucket=tenant.bucket.name,
                tenant=tenant.name,
                blocks=own["count"],
                bytes=int(own["size"] or 0),
                waiting=tenant.waiting,
                compactions=tenant.compactions,
                jobs_waiting=jobs.get((tenant.id, JobState.WAITING.value), 0),
                jobs_running=jobs.get((tenant.id, JobState.LEASED.value), 0),
                jobs_parked=jobs.get((tenant.id, JobState.PARKED.value), 0),
                quarantined=own["bad"],
                to_write=steps.get(tenant.id, {"count": 0})["count"],
                too_large=tenant.too_large,
                parts=tenant.parts,
                seconds=tenant.compactions / rate if rate else (0.0 if not tenant.compactions else None),
                refusal=tenant.refusal,
                is_planned=tenant.planned_at_ms is not None and not _is_due(tenant, now_ms),
                rechecked_at_ms=tenant.plan_at_ms or None,
            )
        )
    return found


def _is_due(tenant: BucketTenant, now_ms: int) -> bool:
    return tenant.plan_at_ms is not None and tenant.plan_at_ms <= now_ms


def _by_tenant(rows: Any, **sums: Any) -> dict[int, dict[str, Any]]:
    return {row["tenant_id"]: row for row in rows.order_by().values("tenant_id").annotate(**sums)}


def _rates(tenants: Any) -> dict[int, float]:
    """Return the number of groups finished per second within ``RATE_WINDOW_MS``, by tenant."""
    now_ms = dialect.clock_ms()
    done = Group.objects.filter(tenant__in=tenants, state=GroupState.DONE, finished_at_ms__gte=now_ms - RATE_WINDOW_MS)
    rates = {}
    for row in done.order_by().values("tenant_id").annotate(count=Count("id"), first=Min("created_at_ms")):
        span_ms = now_ms - max(row["first"], now_ms - RATE_WINDOW_MS)
        rates[row["tenant_id"]] = row["count"] * 1000 / max(span_ms, 1000)
    return rates
