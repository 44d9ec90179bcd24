"""Compaction of Prometheus blocks by interval: finding blocks, planning, telling the bucket, cleaning up."""

from __future__ import annotations

from dataclasses import asdict

import structlog
from django.conf import settings

from tasks.beat import (
    CLEAN_BUCKETS_TASK,
    PLAN_INTERVALS_TASK,
    SCAN_BUCKETS_TASK,
    VERIFY_SOURCES_TASK,
    WRITE_OUTBOXES_TASK,
    app,
)
from tasks.control.object_store import object_store
from tasks.control.turns import only_one

log = structlog.get_logger(__name__)


@app.task(name=SCAN_BUCKETS_TASK)
def scan_buckets() -> None:
    """Find blocks that came or went."""
    from webadmin.lanes.tsdb.services.rounds import scan_buckets as scan

    with only_one(settings.HOME, SCAN_BUCKETS_TASK) as is_alone:
        if not is_alone:
            return
        outcome = scan(object_store)
    for bucket, report in outcome.found.items():
        if report.appeared or report.vanished or report.marked or report.bad or report.broken_off:
            log.info("bucket_scanned", bucket=bucket, **asdict(report))


@app.task(name=PLAN_INTERVALS_TASK)
def plan_intervals() -> None:
    """Make jobs of intervals that are due."""
    from webadmin.lanes.tsdb.services.rounds import plan_due

    report = plan_due(object_store)
    if report.jobs or report.duplicates or report.refused:
        log.info("intervals_planned", jobs=len(report.jobs), duplicates=len(report.duplicates), refused=report.refused)


@app.task(name=WRITE_OUTBOXES_TASK)
def write_outboxes() -> None:
    """Tell the buckets what was done: meta.json, marks, index."""
    from webadmin.lanes.tsdb.services.rounds import write_outboxes as write

    report = write(object_store)
    if report.written or report.failed:
        log.info("outboxes_written", **asdict(report))


@app.task(name=CLEAN_BUCKETS_TASK)
def clean_buckets() -> None:
    """Delete what was marked long enough ago."""
    from webadmin.lanes.tsdb.services.rounds import clean_buckets as clean

    report = clean(object_store)
    if report.deleted or report.partials or report.failed:
        log.info("buckets_cleaned", **asdict(report))


@app.task(name=VERIFY_SOURCES_TASK)
def verify_sources() -> None:
    """Read the sources of failing jobs alone, and keep bad ones apart."""
    from webadmin.lanes.tsdb.services.isolate_sources import isolate_sources

    with only_one(settings.HOME, VERIFY_SOURCES_TASK) as is_alone:
        if not is_alone:
            return
        report = isolate_sources(object_store)
    for ulid, error in report.quarantined.items():
        log.warning("source_quarantined", block=ulid, error=error)
