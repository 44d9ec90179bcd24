"""Compaction of Prometheus blocks by interval: scanning, planning, outboxes and cleaning."""

from __future__ import annotations

from dataclasses import asdict

import structlog
from django.conf import settings

from tasks.beat import app
from tasks.control.object_store import object_store
from tasks.control.task_lock import task_lock
from tasks.control.wake_ups import wake_nodes
from tasks.lanes.tsdb.manifest import (
    CLEAN_BUCKETS_TASK,
    PLAN_INTERVALS_TASK,
    SCAN_BUCKETS_TASK,
    VERIFY_SOURCES_TASK,
    WRITE_OUTBOXES_TASK,
)

log = structlog.get_logger(__name__)


@app.task(name=SCAN_BUCKETS_TASK)
def scan_buckets() -> None:
    """Detect new and removed blocks."""
    from webadmin.lanes.tsdb.services.rounds import scan_buckets as scan

    with task_lock(settings.HOME, SCAN_BUCKETS_TASK) as has_lock:
        if not has_lock:
            return
        outcome = scan(object_store)
    for bucket, report in outcome.named:
        if report.appeared or report.vanished or report.marked or report.bad or report.broken_off:
            log.info("bucket_scanned", bucket=bucket, **asdict(report))


@app.task(name=PLAN_INTERVALS_TASK)
def plan_intervals() -> None:
    """Create the jobs of intervals that are due."""
    from webadmin.lanes.tsdb.services.rounds import plan_due

    report = plan_due(object_store)
    wake_nodes(app, len(report.jobs))
    if report.jobs or report.duplicates or report.refused:
        log.info("intervals_planned", jobs=len(report.jobs), duplicates=len(report.duplicates), refused=report.refused)


@app.task(name=WRITE_OUTBOXES_TASK)
def write_outboxes() -> None:
    """Write completed changes to the buckets: meta.json, marks, index."""
    from webadmin.lanes.tsdb.services.rounds import write_outboxes as write

    report = write(object_store)
    if report.written or report.failed:
        log.info("outboxes_written", **asdict(report))


@app.task(name=CLEAN_BUCKETS_TASK)
def clean_buckets() -> None:
    """Delete marked blocks whose deletion delay has passed, and partial blocks."""
    from webadmin.lanes.tsdb.services.rounds import clean_buckets as clean

    report = clean(object_store)
    if report.deleted or report.partials or report.failed:
        log.info("buckets_cleaned", **asdict(report))


@app.task(name=VERIFY_SOURCES_TASK)
def verify_sources() -> None:
    """Verify the sources of failing jobs one by one; quarantine bad ones."""
    from webadmin.lanes.tsdb.services.isolate_sources import isolate_sources

    with task_lock(settings.HOME, VERIFY_SOURCES_TASK) as has_lock:
        if not has_lock:
            return
        report = isolate_sources(object_store)
    for ulid, error in report.quarantined.items():
        log.warning("source_quarantined", block=ulid, error=error)
