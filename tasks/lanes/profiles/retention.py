"""Deletion of data by age and on request."""

from __future__ import annotations

import structlog

from tasks.beat import app
from tasks.lanes.profiles.manifest import RETENTION_TASK, REWRITE_TASK

log = structlog.get_logger(__name__)


@app.task(name=RETENTION_TASK)
def apply_retention() -> None:
    """Drop data that is older than the retention of its tenant."""
    from webadmin.base.actions.action import ActionContext
    from webadmin.lanes.profiles.services.retain import apply_retention as apply

    report = apply(context=ActionContext(actor="control:retention", why="older than the retention of its tenant"))
    if report.expired:
        log.info("retention_applied", blocks=report.dropped_blocks, segments=report.trimmed_segments)


@app.task(name=REWRITE_TASK)
def rewrite_masked() -> None:
    """Process open delete requests."""
    from webadmin.base.actions.action import ActionContext
    from webadmin.lanes.profiles.services.rewrite_masked import rewrite_masked as rewrite

    report = rewrite(context=ActionContext(actor="control:rewrite", why="deleted on request"))
    log.info("masked_rewritten", **{name: len(found) for name, found in report.to_json().items()})
