"""Compaction of catalogs: the sensor, with what it begins and ends."""

from __future__ import annotations

from dataclasses import asdict

import structlog

from tasks.beat import SENSE_BRANCHES_TASK, app

log = structlog.get_logger(__name__)


@app.task(name=SENSE_BRANCHES_TASK)
def sense_branches() -> None:
    """Weigh the branches on which something was counted, and compact those that are worth it."""
    from webadmin.catalog.services.sense_branches import sense_branches as sense

    report = sense()
    if report.begun or report.failed or report.lost or report.evicted or report.abandoned:
        log.info("branches_sensed", **asdict(report))
