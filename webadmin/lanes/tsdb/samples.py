"""Metrics of buckets for ``/metrics``: a fixed number of queries, limited to the tenants with the largest backlog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.db.models import Count, Min, Q, Sum

from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import Block, Bucket, BucketTenant, Folder, Group, OutboxStep
from webadmin.lanes.tsdb.progress import TenantProgress, tenant_progress
from webadmin.lanes.tsdb.states import BlockState, GroupState

Sample = tuple[tuple[str, ...], float]


def tsdb_samples(tenants_max: int) -> Iterator[tuple[str, list[Sample]]]:
    """Yield the name of each metric with its samples, for at most ``tenants_max`` tenants."""
    now_ms = dialect.clock_ms()
    tenants = sorted(tenant_progress(), key=lambda each: (-each.compactions, each.bucket, each.tenant))[:tenants_max]
    yield "lithify_tsdb_remaining_compactions", [(_key(each), each.compactions) for each in tenants]
    yield "lithify_tsdb_running_jobs", [(_key(each), each.jobs_running) for each in tenants]
    yield "lithify_tsdb_waiting_jobs", [(_key(each), each.jobs_waiting) for each in tenants]
    yield "lithify_tsdb_parked_jobs", [(_key(each), each.jobs_parked) for each in tenants]
    yield "lithify_tsdb_waiting_blocks", [(_key(each), each.waiting) for each in tenants]
    yield "lithify_tsdb_too_large_groups", [(_key(each), each.too_large) for each in tenants]
    yield "lithify_tsdb_refused", [(_key(each), bool(each.refusal)) for each in tenants]
    known = [(_key(each), each.seconds) for each in tenants]
    yield "lithify_tsdb_catching_up_seconds", [(key, seconds) for key, seconds in known if seconds is not None]
    yield from _blocks(tenants)
    yield from _buckets(now_ms)
    yield "lithify_tsdb_oldest_group_age_seconds", _oldest_groups(tenants, now_ms)


def _key(each: TenantProgress) -> tuple[str, str]:
    return (each.bucket, each.tenant)


def _blocks(tenants: Sequence[TenantProgress]) -> Iterator[tuple[str, list[Sample]]]:
    shown = {_key(each) for each in tenants}
    present = Block.objects.exclude(state=BlockState.GONE).order_by()
    place = ("tenant__bucket__name", "tenant__name")
    counts: list[Sample] = [
        ((bucket, tenant, state), count)
        for bucket, tenant, state, count in present.values_list(*place, "state").annotate(count=Count("id"))
        if (bucket, tenant) in shown
    ]
    for name, column in (("no_compact", "no_compact"), ("quarantined", "quarantined")):
        kept_out = present.filter(state=BlockState.LIVE).exclude(**{column: ""})
        counts += [
            ((bucket, tenant, name), count)
            for bucket, tenant, count in kept_out.values_list(*place).annotate(count=Count("id"))
            if (bucket, tenant) in shown
        ]
    for bucket, folder, bad, partial in Folder.objects.filter(Q(bad__gt=0) | Q(partial__gt=0)).values_list(
        "bucket__name", "name", "bad", "partial"
    ):
        tenant = folder.removesuffix("/")  # "" if one folder holds the blocks of all tenants
        if not tenant or (bucket, tenant) in shown:
            counts += [((bucket, tenant, "bad"), bad), ((bucket, tenant, "partial"), partial)]
    yield "lithify_tsdb_blocks", sorted(counts)
    written = BucketTenant.objects.exclude(index_written_at_ms=None).order_by("bucket__name", "name")
    yield (
        "lithify_tsdb_index_written_timestamp_seconds",
        [
            ((bucket, tenant), at_ms / 1000)
            for bucket, tenant, at_ms in written.values_list("bucket__name", "name", "index_written_at_ms")
            if at_ms is not None and (bucket, tenant) in shown
        ],
    )


def _buckets(now_ms: int) -> Iterator[tuple[str, list[Sample]]]:
    scanned = Bucket.objects.exclude(scanned_at_ms=None).values_list("name", "scanned_at_ms")
    ages: list[Sample] = [((name,), max(0, now_ms - at_ms) / 1000) for name, at_ms in scanned if at_ms is not None]
    yield "lithify_tsdb_scan_age_seconds", ages
    parts = BucketTenant.objects.order_by().values_list("bucket__name").annotate(parts=Sum("parts"))
    yield "lithify_tsdb_published_parts", [((name,), count) for name, count in parts]
    steps = OutboxStep.objects.filter(done_at_ms=None).order_by().values_list("tenant__bucket__name")
    yield "lithify_tsdb_outbox_steps", [((name,), count) for name, count in steps.annotate(count=Count("id"))]


def _oldest_groups(tenants: Sequence[TenantProgress], now_ms: int) -> list[Sample]:
    shown = {_key(each) for each in tenants}
    groups = Group.objects.filter(state=GroupState.OPEN).order_by()
    oldest = groups.values_list("tenant__bucket__name", "tenant__name").annotate(oldest=Min("created_at_ms"))
    return [
        ((bucket, tenant), max(0, now_ms - at_ms) / 1000)
        for bucket, tenant, at_ms in oldest
        if (bucket, tenant) in shown
    ]
