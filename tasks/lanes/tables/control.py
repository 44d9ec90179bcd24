"""Compaction of tables: planning, failed tasks, manifests and cleaning."""

from __future__ import annotations

from dataclasses import asdict

import structlog

from tasks.beat import app
from tasks.control.object_store import object_store
from tasks.control.wake_ups import wake_nodes
from tasks.lanes.tables.manifest import CLEAN_TABLES_TASK, PLAN_TABLES_TASK, PUBLISH_TABLES_TASK, SETTLE_TABLES_TASK

log = structlog.get_logger(__name__)


@app.task(name=PLAN_TABLES_TASK)
def plan_tables() -> None:
    """Run the planning cycle of every table that is due."""
    from webadmin.lanes.tables.services.rounds import plan_tables as plan

    report = plan()
    wake_nodes(app, report.created)
    if report.created or report.started or report.shed or report.refused:
        log.info("tables_planned", **asdict(report))


@app.task(name=SETTLE_TABLES_TASK)
def settle_failures() -> None:
    """Read the files of failed tasks and quarantine bad ones."""
    from webadmin.lanes.tables.services.rounds import settle_failures as settle

    report = settle(object_store)
    for path, error in report.quarantined.items():
        log.warning("file_quarantined", path=path, error=error)
    if report.failed:
        log.warning("tasks_failed", tasks=report.failed, not_examined=report.not_examined)


@app.task(name=PUBLISH_TABLES_TASK)
def publish_tables() -> None:
    """Write manifests and update the pointers to them."""
    from webadmin.lanes.tables.services.rounds import publish_tables as publish

    report = publish(object_store)
    if report.published or report.failed:
        log.info("tables_published", published=len(report.published), failed=report.failed)


@app.task(name=CLEAN_TABLES_TASK)
def clean_tables() -> None:
    """Delete replaced files and manifests, and outputs without a manifest."""
    from webadmin.lanes.tables.services.rounds import clean_tables as clean

    report = clean(object_store)
    if report.files or report.outputs or report.manifests or report.failed:
        log.info("tables_cleaned", **asdict(report))
