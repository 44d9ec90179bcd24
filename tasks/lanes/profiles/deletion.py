"""Deletion of the objects of replaced blocks."""

from __future__ import annotations

import structlog
from django.conf import settings

from tasks.beat import app
from tasks.control.object_store import object_store
from tasks.lanes.profiles.manifest import DELETE_OBJECTS_TASK

log = structlog.get_logger(__name__)


@app.task(name=DELETE_OBJECTS_TASK)
def delete_tombstoned_objects() -> None:
    """Delete the objects of replaced blocks whose deletion delay has passed."""
    from webadmin.lanes.profiles.services import delete_tombstoned_objects as delete
    from webadmin.schedule.errors import LogBehind

    try:
        outcome = delete(store=object_store(settings.OBJECT_STORE_URL))
    except LogBehind as error:
        log.error("objects_not_deleted", reason=str(error))
        return
    if outcome.deleted or outcome.failed:
        log.info("objects_deleted", deleted=outcome.deleted, failed=len(outcome.failed))
