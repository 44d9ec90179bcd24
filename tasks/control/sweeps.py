"""Taking away what has served its purpose."""

from __future__ import annotations

from dataclasses import asdict

import structlog
from django.conf import settings

from tasks.beat import SWEEP_TASK, app
from tasks.control.object_store import object_store

log = structlog.get_logger(__name__)


@app.task(name=SWEEP_TASK)
def sweep_leftovers() -> None:
    """Sweep the ledger, lineage records, scratch objects and unfinished uploads."""
    from webadmin.index.services.sweep_leftovers import sweep_leftovers as sweep

    report = asdict(sweep(store=object_store(settings.OBJECT_STORE_URL)))
    if any(report.values()):
        log.info("leftovers_swept", **report)
