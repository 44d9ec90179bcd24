"""Counts of the command log, for rates, metrics and the progress check."""

from __future__ import annotations

import structlog

from tasks.beat import COUNT_LOG_TASK, app

log = structlog.get_logger(__name__)


@app.task(name=COUNT_LOG_TASK)
def count_log() -> None:
    """Count the new entries of the command log."""
    from webadmin.progress.services import count_log as count

    outcome = count()
    if outcome.is_behind:
        log.warning("log_count_behind", commands=outcome.commands)
