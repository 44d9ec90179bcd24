"""One round of the control tasks of buckets: scan, plan, write the outbox, delete.

An error of any kind in one bucket or tenant does not stop the others: the content of buckets comes from other writers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.core.errors import LithifyError
from engine.storage import ObjectStore
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.backoff import error_text
from webadmin.lanes.tsdb.models import Bucket
from webadmin.lanes.tsdb.services.clean_buckets import CleanReport, clean_bucket
from webadmin.lanes.tsdb.services.plan_tenants import PlanReport, due_tenants, note_failure, plan_tenant
from webadmin.lanes.tsdb.services.scan_buckets import ScanReport, scan_bucket
from webadmin.lanes.tsdb.services.write_outbox import OutboxReport, tenants_to_write, write_outbox

log = logging.getLogger(__name__)

OpenStore = Callable[[str], ObjectStore]
TENANTS_PER_ROUND = 200


@dataclass(slots=True)
class ScanRound:
    """Scan reports by bucket, and the buckets that failed."""

    found: dict[str, ScanReport] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def scan_buckets(stores: OpenStore) -> ScanRound:
    """Scan every bucket that is not paused."""
    outcome = ScanRound()
    for bucket in Bucket.objects.filter(is_paused=False):
        try:
            outcome.found[bucket.name] = scan_bucket(bucket, stores(bucket.url))
        except Exception as error:  # noqa: BLE001  logged with its traceback
            outcome.failed[bucket.name] = error_text(error)
            _say("bucket_not_scanned", bucket.name, error)
    return outcome


def plan_due(stores: OpenStore, *, count: int = TENANTS_PER_ROUND) -> PlanReport:
    """Plan the tenants whose plan is due."""
    outcome = PlanReport()
    for tenant in due_tenants(dialect.clock_ms(), count):
        try:
            report = plan_tenant(tenant, stores(tenant.bucket.url))
        except Exception as error:  # noqa: BLE001  logged with its traceback
            outcome.refused[tenant.name] = note_failure(tenant, error)
            _say("tenant_not_planned", tenant.name, error)
            continue
        outcome.jobs += report.jobs
        outcome.duplicates += report.duplicates
        outcome.refused |= report.refused
    return outcome


def write_outboxes(stores: OpenStore) -> OutboxReport:
    """Run the open outbox steps of every tenant."""
    outcome = OutboxReport()
    for tenant in tenants_to_write():
        try:
            report = write_outbox(tenant, stores(tenant.bucket.url))
        except Exception as error:  # noqa: BLE001  logged with its traceback
            outcome.failed += 1
            _say("outbox_not_written", tenant.name, error)
            continue
        outcome.written += report.written
        outcome.indexes += report.indexes
        outcome.failed += report.failed
    return outcome


def clean_buckets(stores: OpenStore) -> CleanReport:
    """Delete what is due in every bucket."""
    outcome = CleanReport()
    for bucket in Bucket.objects.all():
        try:
            report = clean_bucket(bucket, stores(bucket.url))
        except Exception as error:  # noqa: BLE001  logged with its traceback
            outcome.failed += 1
            _say("bucket_not_cleaned", bucket.name, error)
            continue
        outcome.deleted += report.deleted
        outcome.partials += report.partials
        outcome.failed += report.failed
    return outcome


def _say(what: str, name: str, error: Exception) -> None:
    """Log the failure of a step; an unexpected error with its traceback."""
    is_foreseen = isinstance(error, LithifyError)
    log.warning("%s name=%s reason=%s", what, name, error, exc_info=None if is_foreseen else error)
