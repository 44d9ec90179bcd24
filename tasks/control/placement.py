"""Adaptive placement: new rules from what was written lately."""

from __future__ import annotations

import structlog
from django.conf import settings

from engine.storage import open_store
from tasks.beat import PLACEMENT_TASK, app

log = structlog.get_logger(__name__)


@app.task(name=PLACEMENT_TASK)
def build_placement_rules() -> None:
    """Count new segments, build rules and publish them."""
    from webadmin.database import dialect
    from webadmin.placement.services.build_placement_rules import build_placement_rules as build

    outcome = build(
        store=open_store(settings.OBJECT_STORE_URL),
        now_ms=dialect.clock_ms(),
        confidence_ms=round(settings.PLACEMENT_CONFIDENCE_SECONDS * 1000),
    )
    if outcome.changes:
        log.info("placement_rules_changed", version=outcome.version, changes=outcome.changes)
