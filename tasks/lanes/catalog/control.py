"""Compaction of catalogs: the sensor of branches and garbage collection."""

from __future__ import annotations

from dataclasses import asdict

import structlog

from tasks.beat import app
from tasks.control.wake_ups import wake_nodes
from tasks.lanes.catalog.manifest import COLLECT_CATALOGS_TASK, SENSE_BRANCHES_TASK

log = structlog.get_logger(__name__)


@app.task(name=SENSE_BRANCHES_TASK)
def sense_branches() -> None:
    """Evaluate branches with new changes, start compactions that pay off, and delete retired rows."""
    from webadmin.lanes.catalog.services.compaction.sense_branches import sense_branches as sense
    from webadmin.lanes.catalog.services.garbage.sweep_rows import sweep_retired_rows

    report = sense()
    wake_nodes(app, len(report.begun))
    if report.begun or report.failed or report.lost or report.evicted or report.abandoned:
        log.info("branches_sensed", **asdict(report))
    if swept := sweep_retired_rows():
        log.info("retired_rows_swept", rows=swept)


@app.task(name=COLLECT_CATALOGS_TASK)
def collect_catalogs() -> None:
    """Delete unreachable files, objects and rows after their grace period."""
    from webadmin.lanes.catalog.services.garbage.collect_garbage import collect_all

    report = collect_all()
    if report.deleted or report.failed:
        log.info("catalogs_collected", **asdict(report))
