"""Operators' actions: form, endpoint and command of one declaration accept and refuse the same values."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from io import StringIO
from typing import Any

import pytest
from django.contrib import admin
from django.core.management import CommandError, call_command

from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import Fields
from tests.webadmin.service import Service
from webadmin.adminkit.actions import ActionAdmin, form_of
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ACTIONS, OperatorAction
from webadmin.base.actions.api import read_body
from webadmin.base.actions.command import add_options, option_values
from webadmin.base.actions.fields import Choice, Group, MomentMs, Number, Numbers, Switch, Text, Texts, YesOrNo
from webadmin.schedule.action_fields import JOBS
from webadmin.schedule.operation_models import Pause
from webadmin.schedule.register import JobFilter

FIELDS = (
    Text("name", "Name", length_max=5, is_required=True),
    Number("count", "Count", high=9, is_required=True, is_nullable=True),
    Choice("mode", "Mode", choices=(("a", "first"), ("b", "second")), default="b"),
    Switch("quick", "Quick"),
    YesOrNo("spread", "Spread"),
    MomentMs("from_ms", "From", input_name="from_time"),
    Texts("tags", "Tags", length_max=5, count_max=3),
    Numbers("shards", "Shards", low=1, high=9, count_max=3),
    Group(
        "limits",
        "Limits",
        component="TestLimits",
        fields=(Number("low", "Low", high=9), Number("high", "High", high=9)),
        is_partial=True,
    ),
)
ACTION = OperatorAction(operation="test_action", label="Test", about="Tests.", fields=FIELDS, apply=lambda v, o: {})
ACTIONS.pop("test_action")
VALUES = {
    "name": "n",
    "count": None,
    "mode": "a",
    "quick": True,
    "spread": False,
    "from_ms": 1_577_836_800_000,
    "tags": ("x", "y"),
    "shards": [2, 1],
    "limits": {"low": 3},
}
JSON = VALUES | {"tags": ["x", "y"]}
FORM = {
    "name": "n",
    "count": "",
    "mode": "a",
    "quick": "on",
    "spread": "no",
    "from_time": "2020-01-01 00:00",
    "tags": "x, y",
    "shards": "2, 1",
    "low": "3",
    "high": "",
    "why": "w",
}
OPTIONS = "--name n --count none --mode a --quick --spread no --from-time 2020-01-01 --tags x y --shards 2 1 --low 3"


def from_form(form: dict[str, str]) -> dict[str, Any]:
    filled = form_of(ACTION)(form)
    assert filled.is_valid(), filled.errors
    return {name: value for name, value in filled.values().items() if name != "why"}


def from_options(options: str) -> dict[str, Any]:
    parser = ArgumentParser(exit_on_error=False)
    add_options(parser, FIELDS)
    return option_values(FIELDS, vars(parser.parse_args(options.split())))


def from_json(body: dict[str, Any]) -> dict[str, Any]:
    return read_body({"why": "w"} | body, ACTION, "somebody", {})[0]


def test_the_same_values_are_read_from_json_form_and_options() -> None:
    assert from_json(JSON) == VALUES
    assert from_form(FORM) == VALUES
    assert from_options(OPTIONS) == VALUES


def test_defaults_are_the_same() -> None:
    absent = {"mode": "b", "quick": False, "spread": None, "from_ms": None, "tags": (), "shards": (), "limits": {}}
    expected = {"name": "n", "count": 1} | absent
    assert from_json({"name": "n", "count": 1}) == expected
    assert from_options("--name n --count 1") == expected
    empty = dict.fromkeys(FORM, "") | {"name": "n", "count": "1", "mode": "b", "why": "w"}
    del empty["quick"]
    assert from_form(empty) == expected


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": ""}, "$.name"),
        ({"name": "longer than five"}, "$.name"),
        ({"count": 10}, "$.count"),
        ({"mode": "c"}, "$.mode"),
        ({"quick": 1}, "$.quick"),
        ({"spread": "yes"}, "$.spread"),
        ({"from_ms": "2020-01-01"}, "$.from_ms"),
        ({"tags": ["x"] * 4}, "$.tags"),
        ({"shards": [0]}, "$.shards.item"),
        ({"limits": {"low": 99}}, "$.limits.low"),
        ({"limits": {"lowest": 1}}, "$.limits.lowest"),
        ({"dryrun": True}, "$.dryrun"),
        ({"why": ""}, "$.why"),
    ],
)
def test_wrong_json_is_refused_with_its_field(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        from_json(JSON | change)
    assert str(refused.value).startswith(path)


def test_null_that_removes_a_value_is_given_explicitly() -> None:
    with pytest.raises(InvalidMessage, match="count"):
        from_json({"name": "n"})
    assert FIELDS[1].read(Fields("$", {"count": None})) is None


def test_every_action_of_a_page_has_an_operation_and_unique_fields() -> None:
    pages = [page for page in admin.site._registry.values() if isinstance(page, ActionAdmin)]
    actions = [action for page in pages for action in page.operator_actions]
    assert len(actions) > 40
    for action in actions:
        assert action.operation in ACTIONS
        names = [name for field in action.page_fields for name in field.form_fields()]
        assert len(names) == len(set(names)), action.name


def act(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command("act", *arguments, stdout=out)
    return json.loads(out.getvalue())


def test_the_command_previews_and_runs_any_action(service: Service) -> None:
    drain = ("pause", "--scope-kind", "tenant", "--scope-value", "acme", "--mode", "drain")
    assert act(*drain, "--dry-run")["mode"] == "drain"
    assert not Pause.objects.exists()
    assert act(*drain, "--why", "slow disks")["scope"] == {"kind": "tenant", "value": "acme"}
    assert Pause.objects.get().why == "slow disks"
    assert AuditEntry.objects.get(action="pause").actor.startswith("command:")
    with pytest.raises(CommandError, match="name one of"):
        act("pause", "--scope-kind", "lane", "--scope-value", "nosuch")
    with pytest.raises(SystemExit):
        act("requeue", "--jobs", "nothing")


def test_lists_are_empty_inputs_in_a_form() -> None:
    fields = JOBS.form_fields()
    assert fields["jobs"].initial == ""
    cleaned = {name: field.clean(field.initial) for name, field in fields.items()}
    assert JOBS.from_form(cleaned) == JobFilter()
