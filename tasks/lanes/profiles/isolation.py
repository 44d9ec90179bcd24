"""Isolation of the bad blocks of jobs that fail repeatedly."""

from __future__ import annotations

import structlog
from django.conf import settings

from tasks.beat import app
from tasks.control.object_store import object_store
from tasks.lanes.profiles.manifest import ISOLATE_TASK

log = structlog.get_logger(__name__)


@app.task(name=ISOLATE_TASK)
def isolate_bad_blocks() -> None:
    """Split jobs that failed too often; quarantine blocks that failed alone."""
    from webadmin.lanes.profiles.services.isolate_jobs import isolate

    outcome = isolate(store=object_store(settings.OBJECT_STORE_URL))
    for breakage in outcome.breakages:
        log.error("build_fails_to_merge", build=breakage.build, error=breakage.error_class, jobs=breakage.failed_jobs)
    if outcome.split or outcome.quarantined:
        log.info("bad_blocks_isolated", split=len(outcome.split), quarantined=len(outcome.quarantined))
