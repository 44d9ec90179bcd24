"""Adaptive placement: new rules from recently written segments."""

from __future__ import annotations

import structlog
from django.conf import settings

from tasks.beat import PLACEMENT_TASK, app
from tasks.control.object_store import object_store

log = structlog.get_logger(__name__)


@app.task(name=PLACEMENT_TASK)
def build_placement_rules() -> None:
    """Count new segments, build rules and publish them."""
    from webadmin.base.database import dialect
    from webadmin.placement.services.build_placement_rules import build_placement_rules as build

    outcome = build(
        store=object_store(settings.OBJECT_STORE_URL),
        now_ms=dialect.clock_ms(),
        confidence_ms=round(settings.PLACEMENT_CONFIDENCE_SECONDS * 1000),
    )
    if outcome.changes:
        log.info("placement_rules_changed", version=outcome.version, changes=outcome.changes)
