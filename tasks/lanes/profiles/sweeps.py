"""Sweeps of leftovers and orphans, and queues after policy changes."""

from __future__ import annotations

from dataclasses import asdict

import structlog
from django.conf import settings

from tasks.beat import app
from tasks.control.object_store import object_store
from tasks.lanes.profiles.manifest import SETTLE_QUEUES_TASK, SWEEP_ORPHANS_TASK, SWEEP_TASK

log = structlog.get_logger(__name__)


@app.task(name=SWEEP_TASK)
def sweep_leftovers() -> None:
    """Sweep the ledger, lineage records, scratch objects and unfinished uploads."""
    from webadmin.lanes.profiles.services.sweep_leftovers import sweep_leftovers as sweep
    from webadmin.schedule.errors import LogBehind

    try:
        report = asdict(sweep(store=object_store(settings.OBJECT_STORE_URL)))
    except LogBehind as error:
        log.error("leftovers_not_swept", reason=str(error))
        return
    if any(report.values()):
        log.info("leftovers_swept", **report)


@app.task(name=SWEEP_ORPHANS_TASK)
def sweep_orphans() -> None:
    """Delete objects that were written and never committed, once they are a day old. Lists the whole bucket."""
    from webadmin.lanes.profiles.errors import SweepRefused
    from webadmin.lanes.profiles.services.compare_bucket import sweep_orphans as sweep
    from webadmin.schedule.errors import LogBehind

    store = object_store(settings.OBJECT_STORE_URL)
    try:
        # Runs unattended: if most of the bucket is not in the index, the index may have been lost.
        outcome = sweep(store=store, actor="control:orphans", orphans_tolerated=0)
    except (SweepRefused, LogBehind) as error:
        log.warning("orphans_not_swept", reason=str(error))
        return
    log.info("orphans_swept", swept=len(outcome.swept), kept=len(outcome.kept))


@app.task(name=SETTLE_QUEUES_TASK)
def settle_queues() -> None:
    """Re-evaluate queues whose policy was changed while polls were running."""
    from webadmin.lanes.profiles.services.change_level_policy import settle_after_changes

    settle_after_changes()
