"""One round of what control tasks do for buckets: scan, plan, write, clean. A bucket in trouble stops no other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.errors import LithifyError
from engine.storage import ObjectStore
from webadmin.database import dialect
from webadmin.tsdb.models import Bucket
from webadmin.tsdb.services.clean_buckets import CleanReport, clean_bucket
from webadmin.tsdb.services.plan_tenants import PlanReport, due_tenants, plan_tenant
from webadmin.tsdb.services.scan_buckets import ScanReport, scan_bucket
from webadmin.tsdb.services.write_outbox import OutboxReport, tenants_to_write, write_outbox

log = logging.getLogger(__name__)

OpenStore = Callable[[str], ObjectStore]
TENANTS_PER_ROUND = 200


@dataclass(slots=True)
class ScanRound:
    """What scans found by bucket, and which buckets did not answer."""

    found: dict[str, ScanReport] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def scan_buckets(stores: OpenStore) -> ScanRound:
    """Scan every bucket that is not paused."""
    outcome = ScanRound()
    for bucket in Bucket.objects.filter(is_paused=False):
        try:
            outcome.found[bucket.name] = scan_bucket(bucket, stores(bucket.url))
        except LithifyError as error:
            outcome.failed[bucket.name] = str(error)
            log.warning("bucket_not_scanned bucket=%s reason=%s", bucket.name, error)
    return outcome


def plan_due(stores: OpenStore, *, count: int = TENANTS_PER_ROUND) -> PlanReport:
    """Plan the tenants whose plan is due."""
    outcome = PlanReport()
    for tenant in due_tenants(dialect.clock_ms(), count):
        try:
            report = plan_tenant(tenant, stores(tenant.bucket.url))
        except LithifyError as error:
            outcome.refused[tenant.name] = str(error)
            log.warning("tenant_not_planned tenant=%s reason=%s", tenant.name, error)
            continue
        outcome.jobs += report.jobs
        outcome.duplicates += report.duplicates
        outcome.refused |= report.refused
    return outcome


def write_outboxes(stores: OpenStore) -> OutboxReport:
    """Write what commits have promised, for every tenant."""
    outcome = OutboxReport()
    for tenant in tenants_to_write():
        try:
            report = write_outbox(tenant, stores(tenant.bucket.url))
        except LithifyError as error:
            outcome.failed += 1
            log.warning("outbox_not_written tenant=%s reason=%s", tenant.name, error)
            continue
        outcome.written += report.written
        outcome.indexes += report.indexes
        outcome.failed += report.failed
    return outcome


def clean_buckets(stores: OpenStore) -> CleanReport:
    """Delete what is to be deleted, in every bucket."""
    outcome = CleanReport()
    for bucket in Bucket.objects.all():
        try:
            report = clean_bucket(bucket, stores(bucket.url))
        except LithifyError as error:
            outcome.failed += 1
            log.warning("bucket_not_cleaned bucket=%s reason=%s", bucket.name, error)
            continue
        outcome.deleted += report.deleted
        outcome.partials += report.partials
        outcome.failed += report.failed
    return outcome
