"""Planning of merges, and quarantine of files that cannot be read."""

from __future__ import annotations

import structlog
from django.conf import settings

from tasks.beat import app
from tasks.control.object_store import object_store
from tests.lanes.echo.tasks.manifest import ISOLATE_TASK, PLAN_TASK

log = structlog.get_logger(__name__)


@app.task(name=PLAN_TASK)
def plan_texts() -> None:
    """Create the jobs of folders with enough files."""
    from tests.lanes.echo.webadmin.services import plan_folders

    if jobs := plan_folders():
        log.info("texts_planned", jobs=jobs)


@app.task(name=ISOLATE_TASK)
def isolate_texts() -> None:
    """Read the sources of failing jobs one by one; quarantine bad ones."""
    from tests.lanes.echo.webadmin.services import isolate_texts as isolate

    for key, error in isolate(object_store(settings.OBJECT_STORE_URL)).items():
        log.warning("text_quarantined", key=key, error=error)
