"""Limits, overrides and pins: one service, its history and audit, over HTTP and as a command; and what would move."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from engine.placement.errors import EmptyRing, LimitsRefused, PinRefused, RingRefused
from engine.placement.model import LoadBalancing
from engine.placement.placer import Placer
from tests.webadmin.placement.conftest import KIB, UNIT, Placement
from webadmin.base.access.models import AuditEntry
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.actions.action import ActionContext
from webadmin.placement.models import Instance, PlacementChange, PlacementLimit, PlacementOverride
from webadmin.placement.services.decide_placement import change_limits, change_override
from webadmin.placement.services.forecast_placement import FleetChange, what_if
from webadmin.placement.services.instances import Registration, current_ring, register_instance

CONTEXT = ActionContext(actor="operator", why="they grow")
DRY = ActionContext(actor="operator", why="they grow", is_dry_run=True)


@pytest.fixture
def fleet(placement: Placement) -> Placement:
    """Ten instances, and four datasets that write."""
    placement.run(60, *[("acme", f"d{number}", number, 2 * UNIT) for number in range(1, 5)])
    for number in range(1, 11):
        register_instance(Registration(name=f"writer-{number:02}", address="http://h:1", zone="ab"[number % 2]))
    return placement


@pytest.fixture
def api(db: None):
    """Return a function that sends as an operator's credential and gives status and body."""
    secret = issue_worker_credential(name="ops", scopes=["operate"], actor="test").wire_form
    client = Client(headers={"Authorization": f"Bearer {secret}"})

    def send(path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        address = f"/api/v1/placement/{path}"
        answer = client.get(address) if body is None else client.post(address, body, content_type="application/json")
        return answer.status_code, answer.json()

    return send


def command(*arguments: str) -> list[Any]:
    """Run the command; return its lines."""
    out = StringIO()
    call_command("placement", *arguments, stdout=out)
    return [json.loads(line) if line.startswith("{") else line for line in out.getvalue().splitlines()]


def test_a_limit_is_set_kept_as_history_audited_and_in_the_next_rules(placement: Placement) -> None:
    decision = change_limits(tenant="acme", values={"dataset_shards_min": 3}, context=CONTEXT)
    assert (decision.before, decision.after) == (None, {"dataset_shards_min": 3})
    [change] = PlacementChange.objects.all()
    assert (change.actor, change.why, change.after) == ("operator", "they grow", {"dataset_shards_min": 3})
    assert AuditEntry.objects.filter(action="change_placement_limits", target="acme").count() == 1
    placement.write("acme", "web", KIB)
    placement.round()
    assert placement.rules().rule("acme", "web").dataset_shards == 3


def test_a_number_that_is_given_keeps_the_others_and_none_takes_it_back(db: None) -> None:
    change_limits(tenant="acme", values={"dataset_shards_min": 3}, context=CONTEXT)
    both = change_limits(tenant="acme", values={"tenant_shards": 8}, context=CONTEXT)
    assert both.after == {"dataset_shards_min": 3, "tenant_shards": 8}
    one = change_limits(tenant="acme", values={"dataset_shards_min": None}, context=CONTEXT)
    assert one.after == {"tenant_shards": 8}
    assert change_limits(tenant="acme", values=None, context=CONTEXT).after is None
    assert not PlacementLimit.objects.exists()


def test_what_holds_already_leaves_no_trace(db: None) -> None:
    for _ in range(2):
        change_override(tenant="acme", dataset="web", values={"dataset_shards": 2}, context=CONTEXT)
    assert PlacementChange.objects.count() == 1
    assert AuditEntry.objects.filter(action="change_placement_override").count() == 1


def test_everybodys_limits_hold_for_tenants_without_numbers_of_their_own(placement: Placement) -> None:
    change_limits(values={"dataset_shards_min": 2, "load_balancing": "round_robin"}, context=CONTEXT)
    change_limits(tenant="beta", values={"dataset_shards_min": 4}, context=CONTEXT)
    placement.write("acme", "web", KIB)
    placement.write("beta", "web", KIB)
    placement.round()
    rules = placement.rules()
    assert (rules.rule("acme", "web").dataset_shards, rules.rule("beta", "web").dataset_shards) == (2, 4)
    assert rules.rule("beta", "web").load_balancing is LoadBalancing.ROUND_ROBIN


@pytest.mark.parametrize(
    "values",
    [
        {"dataset_shards_min": 5, "dataset_shards_max": 4},
        {"unit_bytes": 0},
        {"burst_window_s": 0},
        {"load_balancing": "sometimes"},
        {"shards": [1]},
    ],
)
def test_limits_that_cannot_be_obeyed_are_refused(db: None, values: dict[str, Any]) -> None:
    with pytest.raises(LimitsRefused):
        change_limits(tenant="acme", values=values, context=CONTEXT)
    assert not PlacementLimit.objects.exists()


def test_everybodys_limit_may_not_contradict_a_tenants_own(db: None) -> None:
    change_limits(tenant="acme", values={"dataset_shards_min": 50}, context=CONTEXT)
    with pytest.raises(LimitsRefused):
        change_limits(values={"dataset_shards_max": 40}, context=CONTEXT)


@pytest.mark.row("L16")
def test_only_an_overridden_dataset_is_spread_at_random(fleet: Placement) -> None:
    values = {"tenant_shards": 4, "dataset_shards": 4, "load_balancing": "round_robin"}
    change_override(tenant="tenant-a", dataset="dataset-a", values=values, context=CONTEXT)
    fleet.round()
    placer = Placer(current_ring(), fleet.rules(), seed=7)
    assert len({placer.decide("tenant-a", "dataset-a", 5).shard for _ in range(100)}) == 4
    for tenant, dataset in (("tenant-a", "dataset-b"), ("tenant-b", "dataset-a")):
        assert len({placer.decide(tenant, dataset, 5).shard for _ in range(100)}) == 1


def test_a_pin_to_shards_that_the_ring_does_not_have_is_refused(fleet: Placement) -> None:
    beyond = current_ring().shards + 1
    with pytest.raises(PinRefused):
        change_override(tenant="acme", dataset="d1", values={"shards": [1, beyond]}, context=CONTEXT)
    with pytest.raises(PinRefused):
        change_override(tenant="acme", dataset="d1", values={"shards": [1, 1]}, context=CONTEXT)
    assert not PlacementOverride.objects.exists()


def test_a_pin_moves_its_dataset_and_no_other(fleet: Placement) -> None:
    shards = current_ring().shards
    decision = change_override(tenant="acme", dataset="d1", values={"shards": [shards, shards - 1]}, context=DRY)
    assert decision.movement is not None
    assert {one["dataset"] for one in decision.movement.movers} <= {"d1"}
    assert decision.movement.moved_shards <= 0.27
    assert not PlacementOverride.objects.exists(), "a dry run changes nothing"


def test_a_dry_run_without_a_ring_shows_the_decision_and_no_moves(db: None) -> None:
    decision = change_limits(tenant="acme", values={"tenant_shards": 2}, context=DRY)
    assert decision.movement is None
    assert decision.after == {"tenant_shards": 2}


def test_what_if_an_instance_leaves_only_what_it_hosted_moves(fleet: Placement) -> None:
    now = what_if(FleetChange())
    assert (now.moved, now.moved_shards) == (0, 0)
    busy = now.loads[0]["instance"]
    seen = what_if(FleetChange(remove=(busy,)))
    assert 0 < seen.moved == pytest.approx(seen.unavoidable)
    assert seen.loads[0] == {"instance": busy, "before": now.loads[0]["before"], "after": "0.0 %"}
    assert Instance.objects.filter(left_at_ms=None).count() == 10


def test_what_if_an_instance_joins_a_zone_no_more_than_its_share_moves(fleet: Placement) -> None:
    seen = what_if(FleetChange(add=("a",)))
    assert seen.shards[0] == seen.shards[1]
    assert {one["instance"] for one in seen.loads} <= {f"writer-{number:02}" for number in range(1, 11)} | {"new-1"}


def test_what_if_nothing_is_written_made_up_datasets_stand_in(placement: Placement) -> None:
    register_instance(Registration(name="one", address="http://h:1"))
    seen = what_if(FleetChange(add=("",)))
    assert "made-up" in seen.notes[0]
    assert 0.3 < seen.moved < 0.7


def test_what_if_refuses_names_that_are_not_there_and_an_empty_fleet(fleet: Placement) -> None:
    with pytest.raises(RingRefused, match="nobody"):
        what_if(FleetChange(remove=("nobody",)))
    with pytest.raises(EmptyRing):
        what_if(FleetChange(remove=[f"writer-{number:02}" for number in range(1, 11)]))


def test_a_what_if_without_a_ring_is_an_error_with_advice(db: None) -> None:
    with pytest.raises(EmptyRing, match="segment writer"):
        what_if(FleetChange(add=("",)))


def test_orders_over_http_are_the_same_service(fleet: Placement, api) -> None:
    status, body = api("limits", {"tenant": "acme", "numbers": {"tenant_shards": 6}, "why": "w"})
    assert (status, body["changed"], body["after"]) == (200, True, {"tenant_shards": 6})
    status, body = api("overrides", {"tenant": "acme", "dataset": "d1", "override": {"shards": [2, 1]}, "why": "w"})
    assert (status, body["after"]) == (200, {"shards": [1, 2]})
    fleet.round()
    status, body = api("rules?tenant=acme")
    assert [row["shards"] for row in body["datasets"] if row["dataset"] == "d1"] == [[1, 2]]
    assert body["datasets"][1]["tenant_shards"] == 6
    assert api("limits")[1] == {"limits": [{"tenant": "acme", "numbers": {"tenant_shards": 6}}]}
    assert api("overrides")[1]["overrides"][0]["override"] == {"shards": [1, 2]}
    assert api("changes?tenant=acme&dataset=d1")[1]["changes"][0]["reason"] == "override by an operator"
    status, body = api("overrides", {"tenant": "acme", "dataset": "d1", "override": None, "why": "w"})
    assert (status, body["after"]) == (200, None)


def test_the_fleet_over_http(fleet: Placement, api) -> None:
    status, body = api("instances")
    assert (status, len(body["instances"]), sum(row["shards"] for row in body["instances"])) == (
        200,
        10,
        body["shards"],
    )
    status, seen = api("drain", {"instances": ["writer-01"], "why": "w", "dry_run": True})
    assert status == 200
    assert seen["movement"]["notes"] == []
    assert api("drain", {"instances": ["writer-01"], "why": "w"})[1]["changed"]
    assert not api("drain", {"instances": ["writer-01"], "why": "w"})[1]["changed"]
    assert len(current_ring().instances) == 9
    status, seen = api("ring-size", {"shards": 400, "why": "w", "dry_run": True})
    assert (status, seen["movement"]["shards_after"]) == (200, 400)
    assert api("ring-size", {"shards": 400, "why": "w"})[1]["changed"]
    assert api("what-if", {"add": ["a", "b"], "remove": ["writer-02"]})[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("limits", {"numbers": {"nonsense": 1}, "why": "w"}, "invalid_message"),
        ("limits", {"numbers": {"unit_bytes": "1"}, "why": "w"}, "invalid_message"),
        ("limits", {"numbers": {"unit_bytes": 1}}, "invalid_message"),
        ("limits", {"numbers": {"dataset_shards_min": 0}, "why": "w"}, "invalid_message"),
        ("limits", {"tenant": "../x", "numbers": {}, "why": "w"}, "placement_limits_refused"),
        ("overrides", {"tenant": "a", "dataset": "d", "override": {"shards": [0]}, "why": "w"}, "invalid_message"),
        ("overrides", {"tenant": "a", "dataset": "d", "override": {"shards": [5, 5]}, "why": "w"}, "pin_refused"),
        ("what-if", {"remove": ["nobody"]}, "ring_refused"),
        ("what-if", {"add": [1]}, "invalid_message"),
    ],
)
def test_bad_orders_are_refused_with_a_code(db: None, api, path: str, body: dict[str, Any], code: str) -> None:
    status, answer = api(path, body)
    assert (status, answer["code"]) == (400, code)


def test_the_command_shows_changes_and_answers_what_if(fleet: Placement, tmp_path: Path) -> None:
    [decision] = command("override", "acme", "d2", "--shards", "3", "--why", "noisy")
    assert decision["after"] == {"shards": [3]}
    fleet.round()
    head, *rows = command("show", "--tenant", "acme")
    assert head["datasets"] == 4
    assert [row["shards"] for row in rows if row["dataset"] == "d2"] == [[3]]
    [seen] = command("what-if", "--remove", "writer-05")
    assert seen["moved_to_other_instances"] == seen["unavoidable"]
    [limit] = command("limits", "--tenant", "acme", "--unit-bytes", "1024", "--dry-run")
    assert limit["movement"]["datasets"], "units of a 128th need more shards"
    with pytest.raises(CommandError, match="remove"):
        command("limits", "--tenant", "acme")
    with pytest.raises(CommandError, match="nobody"):
        command("what-if", "--remove", "nobody")


def test_the_command_draws_every_trace_and_archetype(tmp_path: Path) -> None:
    paths = command("plot", "--out", str(tmp_path / "plots"))
    assert {"load-steady-front.svg", "load-extreme-spikes.svg"} <= {Path(path).name for path in paths}
    assert sum(Path(path).name.startswith("load-") for path in paths) == 4
    assert all(Path(path).read_text().startswith("<svg") for path in paths)
