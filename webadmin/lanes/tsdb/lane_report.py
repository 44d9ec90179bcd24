"""Progress and problem reports of the lane of Prometheus blocks."""

from __future__ import annotations

from engine.schedule.progress import count_text, first_names
from webadmin.lanes.tsdb.models import Bucket, BucketTenant, OutboxStep
from webadmin.schedule.lanes import LaneBlocker, Waiting


def compactions_waiting(tenant: str | None) -> list[Waiting]:
    """Return, for each tenant of a bucket, the blocks that pending compactions will merge."""
    rows = BucketTenant.objects.filter(compactions__gt=0, is_deleted=False).select_related("bucket").defer("slots")
    rows = rows if tenant is None else rows.filter(name=tenant)
    return [
        Waiting(
            tenant=row.name,
            name=f"{row.bucket.name}/{row.name}",
            count=row.waiting,
            unit="block",
            size_bytes=None,
            words=f"after {count_text(row.compactions, 'compaction')}",
            is_paused=row.bucket.is_paused,
        )
        for row in rows
    ]


def blocks_kept(tenant: str) -> list[str]:
    """Return a sentence on the buckets whose blocks a request to delete the tenant's data leaves unchanged, if any."""
    buckets = Bucket.objects.filter(tenants__name=tenant, tenants__is_deleted=False)
    names = list(buckets.order_by("name").values_list("name", flat=True))
    if not names:
        return []
    return [
        f"Prometheus blocks in {count_text(len(names), 'bucket')} ({first_names(names)}): not hidden and not "
        "rewritten. Delete them by the means of the system that reads the bucket."
    ]


def bucket_blockers() -> list[LaneBlocker]:
    """Return the problems of buckets that need an operator."""
    found = []
    if count := Bucket.objects.filter(is_paused=False).exclude(scan_error="").count():
        text = f"{count_text(count, 'bucket')} not read: the last scan broke off"
        found.append(LaneBlocker("buckets_not_read", text, "check the store of the bucket; the scan is repeated"))
    tenants = BucketTenant.objects.filter(is_deleted=False, bucket__is_paused=False)
    if count := tenants.exclude(refusal="").count():
        text = f"{count_text(count, 'tenant')} of buckets not planned"
        found.append(LaneBlocker("buckets_refused", text, "read the reason on the page of the tenant's intervals"))
    if count := OutboxStep.objects.filter(done_at_ms=None).exclude(last_error="").count():
        text = f"{count_text(count, 'write')} to buckets refused: results are not seen yet"
        found.append(LaneBlocker("outbox_refused", text, "check the store of the bucket; the write is tried again"))
    return found
