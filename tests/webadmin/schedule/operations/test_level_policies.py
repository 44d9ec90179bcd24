"""Level policies change at run time, for everybody or one tenant, with a preview; the change is logged and audited."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from hypothesis import given
from hypothesis import strategies as st

from engine.lanes.profiles.plan.policy_rules import POLICY_RULES, check_policy
from engine.schedule.errors import PolicyRefused
from tests.webadmin.schedule.operations.test_operations_api import Operator
from tests.webadmin.schedule.test_fair_polls import add_level_one
from tests.webadmin.service import Service, check_invariants
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.level_models import LevelPolicy, LevelQueue
from webadmin.lanes.profiles.services.change_level_policy import change_level_policy
from webadmin.schedule.models import Command

CONTEXT = ActionContext(actor="user:jo", why="test")
DRY = ActionContext(actor="user:jo", why="test", is_dry_run=True)
DEFAULTS = {0: (20, 36), 1: (10, 720), 2: (10, 10_800)}


def test_a_fresh_installation_has_the_defaults_of_the_reference(db: None) -> None:
    rows = {row.level: (row.blocks_max, row.age_seconds) for row in LevelPolicy.objects.filter(tenant="")}
    assert rows == DEFAULTS
    assert set(LevelPolicy.objects.values_list("spread_seconds", flat=True)) == {10_800}
    assert set(LevelPolicy.objects.values_list("partial_batch_bytes", "result_bytes_max")) == {(0, 0)}


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("name", sorted(POLICY_RULES))
def test_every_number_changes_per_level_and_per_tenant(service: Service, name: str, level: int) -> None:
    value = max(POLICY_RULES[name].low, 7)
    before = LevelPolicy.objects.get(level=level, tenant="")
    change_level_policy(lane="profiles", level=level, tenant="acme", values={name: value}, context=CONTEXT)
    row = LevelPolicy.objects.get(level=level, tenant="acme")
    assert getattr(row, name) == value
    for other in set(POLICY_RULES) - {name}:
        assert getattr(row, other) == getattr(before, other), "a tenant's first row starts from everybody's"
    change_level_policy(lane="profiles", level=level, values={name: value}, context=CONTEXT)
    assert getattr(LevelPolicy.objects.get(level=level, tenant=""), name) == value
    [entry] = AuditEntry.objects.filter(target=f"profiles level {level} acme")
    assert entry.detail["after"][name] == value
    assert Command.objects.filter(change_set__action="change_level_policy").count() == 2


def test_the_next_poll_obeys_and_only_for_the_tenant(service: Service) -> None:
    add_level_one(service, "acme", 4)
    add_level_one(service, "beta", 4)
    worker = service.worker()
    assert worker.take(8) == []
    preview = change_level_policy(lane="profiles", level=1, tenant="acme", values={"blocks_max": 2}, context=DRY)
    assert (preview.jobs_before, [len(job["sources"]) for job in preview.jobs_after]) == ((), [2, 2])
    assert (preview.queues, preview.blocks, preview.command_index) == (1, 4, None)
    assert worker.take(8) == [], "a preview changes nothing"
    change_level_policy(lane="profiles", level=1, tenant="acme", values={"blocks_max": 2}, context=CONTEXT)
    assert [(spec.tenant, len(spec.sources)) for spec in worker.take(8)] == [("acme", 2), ("acme", 2)]
    check_invariants()


def test_a_preview_leaves_every_row_as_it_was(service: Service) -> None:
    add_level_one(service, "acme", 3)
    before = service.dump()
    policies = list(LevelPolicy.objects.values())
    change_level_policy(lane="profiles", level=1, values={"blocks_max": 1, "age_seconds": 1}, context=DRY)
    assert service.dump() == before
    assert list(LevelPolicy.objects.values()) == policies
    assert not AuditEntry.objects.filter(action="change_level_policy").exists()


def test_a_tenants_own_policy_can_be_taken_back_and_twice_changes_nothing(service: Service) -> None:
    add_level_one(service, "acme", 3)
    change_level_policy(lane="profiles", level=1, tenant="acme", values={"blocks_max": 3}, context=CONTEXT)
    assert LevelQueue.objects.get(tenant="acme").ready_at_ms <= service.clock.now_ms
    taken = change_level_policy(lane="profiles", level=1, tenant="acme", values=None, context=CONTEXT)
    assert taken.before is not None
    assert taken.after is None
    assert LevelQueue.objects.get(tenant="acme").ready_at_ms > service.clock.now_ms
    again = change_level_policy(lane="profiles", level=1, tenant="acme", values=None, context=CONTEXT)
    assert again.command_index is None


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ({"level": 1}, {"blocks_max": 0}),
        ({"level": 1}, {"blocks_max": 1001}),
        ({"level": 1}, {"age_seconds": 0}),
        ({"level": 1}, {"bytes_max": 5}),
        ({"level": 1}, {"colour": 5}),
        ({"level": 1}, {"partial_batch_age_seconds": 721}),
        ({"level": 1}, None),
        ({"level": 3}, {"blocks_max": 5}),
        ({"level": 1, "lane": "tables"}, {"blocks_max": 5}),
        ({"level": 1, "tenant": "../etc"}, {"blocks_max": 5}),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_stored(service: Service, place: dict, values: dict | None) -> None:
    before = list(LevelPolicy.objects.values())
    for context in (CONTEXT, DRY):
        with pytest.raises(PolicyRefused):
            change_level_policy(**{"lane": "profiles"} | place, values=values, context=context)
    assert list(LevelPolicy.objects.values()) == before
    assert not Command.objects.exists()


@given(st.dictionaries(st.sampled_from(sorted(POLICY_RULES)), st.integers(-1, 1 << 51)))
def test_a_policy_that_is_accepted_is_within_its_bounds(values: dict[str, int]) -> None:
    try:
        check_policy(values)
    except PolicyRefused:
        return
    assert set(values) == set(POLICY_RULES)
    assert all(value >= 0 for value in values.values())
    assert values["partial_batch_age_seconds"] <= values["age_seconds"]


def run(*arguments: str) -> list[dict]:
    out = StringIO()
    call_command("level_policy", *arguments, stdout=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_the_command_lists_previews_and_changes(service: Service) -> None:
    assert [row["level"] for row in run()] == [0, 1, 2]
    [shown] = run("--level=2", "--tenant=acme", "--partial-batch-bytes=8388608", "--dry-run")
    assert (shown["before"], shown["after"]["partial_batch_bytes"], shown["command"]) == (None, 8 << 20, None)
    [done] = run("--level=2", "--tenant=acme", "--partial-batch-bytes=8388608", "--why=few shards")
    assert done["command"] is not None
    [gone] = run("--level=2", "--tenant=acme", "--remove")
    assert gone["after"] is None
    with pytest.raises(CommandError, match="give numbers"):
        run("--level=2")
    with pytest.raises(CommandError, match="blocks_max of 0"):
        run("--level=2", "--blocks-max=0")


def test_the_api_lists_previews_and_changes(service: Service) -> None:
    operator = Operator()
    assert [row["level"] for row in operator.get("level-policies").json()["policies"]] == [0, 1, 2]
    body = {"why": "few shards", "level": 1, "tenant": "acme", "numbers": {"blocks_max": 5}}
    assert operator.post("level-policies", body | {"dry_run": True}).json()["command"] is None
    done = operator.post("level-policies", body)
    assert (done.status_code, done.json()["after"]["blocks_max"]) == (200, 5)
    assert operator.get("level-policies").json()["policies"][-2]["numbers"]["blocks_max"] == 5
    assert operator.post("level-policies", body | {"numbers": None}).json()["after"] is None
    for numbers in ({"blocks_max": 0}, {"blocks_max": "5"}, {"colour": 1}, [], {"age_seconds": 1e300}):
        refused = operator.post("level-policies", body | {"numbers": numbers})
        assert (refused.status_code, refused.json()["code"] in ("policy_refused", "invalid_message")) == (400, True)
    del body["numbers"]
    assert operator.post("level-policies", body).status_code == 400
