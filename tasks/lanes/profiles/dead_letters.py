"""Recovery of metadata that could not be registered when its object was written."""

from __future__ import annotations

import structlog
from django.conf import settings

from tasks.beat import app
from tasks.control.object_store import object_store
from tasks.lanes.profiles.manifest import RECOVER_LETTERS_TASK

log = structlog.get_logger(__name__)


@app.task(name=RECOVER_LETTERS_TASK)
def recover_dead_letters() -> None:
    """Register the entries below ``dlq/``, oldest first."""
    from webadmin.lanes.profiles.services.recover_letters import recover_letters

    outcome = recover_letters(store=object_store(settings.OBJECT_STORE_URL))
    if outcome.recovered or outcome.kept:
        log.info("letters_recovered", recovered=outcome.recovered, kept=len(outcome.kept))
