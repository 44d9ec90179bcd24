"""One round of the control tasks of buckets: scan, plan, write the outbox, delete."""

from __future__ import annotations

from collections.abc import Callable

from engine.storage import ObjectStore
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import Bucket
from webadmin.lanes.tsdb.services.clean_buckets import CleanReport, clean_bucket
from webadmin.lanes.tsdb.services.plan_tenants import PlanReport, due_tenants, note_failure, plan_tenant
from webadmin.lanes.tsdb.services.scan_buckets import ScanReport, scan_bucket
from webadmin.lanes.tsdb.services.write_outbox import OutboxReport, tenants_to_write, write_outbox
from webadmin.schedule.rounds import Round, run_round

OpenStore = Callable[[str], ObjectStore]
TENANTS_PER_ROUND = 200


def scan_buckets(stores: OpenStore) -> Round[ScanReport]:
    """Scan every bucket that is not paused."""
    buckets = Bucket.objects.filter(is_paused=False)
    return run_round("bucket_not_scanned", buckets, lambda bucket: scan_bucket(bucket, stores(bucket.url)))


def plan_due(stores: OpenStore, *, count: int = TENANTS_PER_ROUND) -> PlanReport:
    """Plan the tenants whose plan is due."""
    done = run_round(
        "tenant_not_planned",
        due_tenants(dialect.clock_ms(), count),
        lambda tenant: plan_tenant(tenant, stores(tenant.bucket.url)),
        note_failure=note_failure,
    )
    outcome = PlanReport(refused=done.failed)
    for report in done.reports:
        outcome.jobs += report.jobs
        outcome.duplicates += report.duplicates
        outcome.refused |= report.refused
    return outcome


def write_outboxes(stores: OpenStore) -> OutboxReport:
    """Run the open outbox steps of every tenant."""
    done = run_round(
        "outbox_not_written", tenants_to_write(), lambda tenant: write_outbox(tenant, stores(tenant.bucket.url))
    )
    return OutboxReport(
        written=done.total("written"), indexes=done.total("indexes"), failed=done.total("failed") + len(done.failed)
    )


def clean_buckets(stores: OpenStore) -> CleanReport:
    """Delete what is due in every bucket."""
    done = run_round(
        "bucket_not_cleaned", Bucket.objects.all(), lambda bucket: clean_bucket(bucket, stores(bucket.url))
    )
    return CleanReport(
        deleted=done.total("deleted"),
        partials=done.total("partials"),
        failed=done.total("failed") + len(done.failed),
    )
