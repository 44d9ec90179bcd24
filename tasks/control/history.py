"""History that is old enough to be deleted, and the log position."""

from __future__ import annotations

from dataclasses import asdict

import structlog
from django.conf import settings

from tasks.beat import TRIM_TASK, WRITE_POSITION_TASK, app
from tasks.control.object_store import object_store

log = structlog.get_logger(__name__)


@app.task(name=TRIM_TASK)
def trim_history() -> None:
    """Delete entries of the log and attempts that are older than HISTORY_DAYS."""
    from webadmin.progress.services.trim_history import trim_history as trim

    report = asdict(trim(keep_days=settings.HISTORY_DAYS))
    if any(report.values()):
        log.info("history_trimmed", **report)


@app.task(name=WRITE_POSITION_TASK)
def write_log_position() -> None:
    """Write the position of the command log to the bucket; log an error if the stored one is ahead of it."""
    from webadmin.schedule.errors import LogBehind
    from webadmin.schedule.services.guard_deletions import allow_deletions

    try:
        allow_deletions(store=object_store(settings.OBJECT_STORE_URL))
    except LogBehind as error:
        log.error("deletions_refused", reason=str(error))
