"""The control task of placement is on beat's schedule and does one round."""

from __future__ import annotations

import pytest

from engine.placement.publication import load_rules
from tasks.beat import PERIODIC_JOBS, PLACEMENT_TASK, app
from tasks.control.placement import build_placement_rules
from tests.signed_documents import signed
from tests.webadmin.placement.conftest import UNIT, Placement


def test_it_runs_every_fifteen_seconds() -> None:
    [job] = [job for job in PERIODIC_JOBS if job.task == PLACEMENT_TASK]
    assert job.every_seconds == 15
    assert build_placement_rules.name == PLACEMENT_TASK in app.tasks


def test_it_builds_rules_into_the_configured_store(placement: Placement, settings) -> None:
    settings.OBJECT_STORE_URL = placement.store.url
    placement.write("acme", "web", UNIT)
    build_placement_rules()
    build_placement_rules()
    rules = load_rules(signed(placement.store))
    assert rules is not None
    assert (rules.version, set(rules.datasets)) == (2, {("acme", "web")})


@pytest.mark.row("L21")
def test_the_task_publishes_nothing_before_the_configured_confidence_period(placement: Placement, settings) -> None:
    settings.OBJECT_STORE_URL = placement.store.url
    settings.PLACEMENT_CONFIDENCE_SECONDS = 60.0
    build_placement_rules()
    assert load_rules(signed(placement.store)) is None
    placement.service.clock.advance(60)
    build_placement_rules()
    assert load_rules(signed(placement.store)) is not None
