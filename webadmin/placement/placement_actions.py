"""Operators' actions on placement: limits, overrides, the fleet of segment writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.placement.model import SHARDS_MAX, LoadBalancing
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.actions.action import ActionContext, OperatorAction, Values
from webadmin.base.actions.fields import Number, Text, Texts
from webadmin.placement import placement_messages as shapes
from webadmin.placement.models import NAME_MAX, Instance, PlacementLimit, PlacementOverride
from webadmin.placement.operator_settings import limit_values, override_values
from webadmin.placement.placement_fields import LIMITS, OVERRIDE
from webadmin.placement.rule_models import DATASET_NAME_MAX
from webadmin.placement.services.decide_placement import Decision, change_limits, change_override
from webadmin.placement.services.forecast_placement import NEW_INSTANCES_MAX, FleetChange, what_if
from webadmin.placement.services.instances import current_ring, drain_instance, size_ring

TENANT = Text("tenant", "Tenant", "Empty: all tenants without their own limits.", length_max=TENANT_NAME_MAX)


def _decided(decisions: Sequence[Decision], is_dry_run: bool) -> dict[str, Any]:
    """Return the changes by tenant and dataset, and for a dry run what would move."""
    if not is_dry_run:
        return {"changed": [_place(one) for one in decisions if one.before != one.after]}
    values = [row for one in decisions for row in _values(one)]
    described: dict[str, Any] = {"values": values}
    movements = [one.movement.to_json() for one in decisions if one.movement is not None]
    described |= movements[0] if len(movements) == 1 else {}
    if not values:
        described["notes"] = ["No changes."]
    return described


def _place(decision: Decision) -> str:
    return f"{decision.tenant or 'everybody'}/{decision.dataset}".rstrip("/")


def _values(decision: Decision) -> list[dict[str, Any]]:
    before, after = decision.before or {}, decision.after or {}
    return [
        {
            "of": _place(decision),
            "value": name.replace("_", " "),
            "before": _told(before, name),
            "after": _told(after, name),
        }
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _told(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return "not set"
    if name == "load_balancing":
        return LoadBalancing(values[name]).name.lower().replace("_", " ")
    return ", ".join(map(str, values[name])) if isinstance(values[name], list) else str(values[name])


def _drain(values: Values, context: ActionContext) -> dict[str, Any]:
    names = values["instances"]
    if context.is_dry_run:
        return {"changed": [], "movement": what_if(FleetChange(remove=names)).to_json()}
    changed = [name for name in names if drain_instance(name, actor=context.actor, reason=context.why)]
    return {"changed": changed, "movement": None}


def _size_ring(values: Values, context: ActionContext) -> dict[str, Any]:
    shards, before = values["shards"], current_ring()
    if context.is_dry_run:
        movement = what_if(FleetChange(shards=max(shards, before.shards)))
        return {"changed": [], "movement": movement.to_json()}
    after = size_ring(shards, actor=context.actor, reason=context.why)
    return {"changed": ["the ring"] if after.version != before.version else [], "movement": None}


def _fleet(outcomes: Sequence[dict[str, Any]], is_dry_run: bool) -> dict[str, Any]:
    [outcome] = outcomes
    return outcome["movement"] if is_dry_run else {"changed": outcome["changed"]}


def _override_initial(rows: Sequence[PlacementOverride]) -> dict[str, Any]:
    if len(rows) != 1:
        return {}
    values = override_values(rows[0])
    return _words(values) | {"shards": ", ".join(map(str, values.get("shards", [])))}


def _limit_initial(rows: Sequence[PlacementLimit]) -> dict[str, Any]:
    return _words(limit_values(rows[0])) if len(rows) == 1 else {}


def _words(values: dict[str, Any]) -> dict[str, Any]:
    """Return values as forms show them."""
    words = {name: int(value) if name.endswith("_window_s") else value for name, value in values.items()}
    if "load_balancing" in words:
        words["load_balancing"] = LoadBalancing(words["load_balancing"]).name.lower()
    return words


def _limit_rows(rows: Sequence[PlacementLimit]) -> list[dict[str, Any]]:
    return [{"tenant": row.tenant} for row in rows]


def _override_rows(rows: Sequence[PlacementOverride]) -> list[dict[str, Any]]:
    return [{"tenant": row.tenant, "dataset": row.dataset} for row in rows]


SET_LIMITS = OperatorAction(
    name="set",
    operation="change_placement_limits",
    label="Set limits",
    about="Sets limits for one tenant or all tenants. The preview shows which datasets would move.",
    targets=(TENANT,),
    fields=(LIMITS,),
    apply=lambda values, context: change_limits(tenant=values["tenant"], values=values["numbers"], context=context),
    outcome=shapes.DecisionSerializer,
    describe=_decided,
)
LIMIT_ACTIONS = (
    replace(
        SET_LIMITS,
        name="change",
        label="Change",
        about="Changes the selected limits from the next rules on. Empty fields keep their value.",
        of_rows=_limit_rows,
        initial=_limit_initial,
    ),
    replace(
        SET_LIMITS,
        name="remove",
        label="Remove",
        about="Removes the selected limits; those for all tenants or the defaults apply again.",
        fields=(),
        of_rows=lambda rows: [{**place, "numbers": None} for place in _limit_rows(rows)],
    ),
    SET_LIMITS,
)
SET_OVERRIDE = OperatorAction(
    name="set",
    operation="change_placement_override",
    label="Override or pin a dataset",
    about="Overrides the load-based rule of a dataset. The preview shows what would move.",
    targets=(
        replace(TENANT, about="", is_required=True),
        Text("dataset", "Dataset", "The service's name.", length_max=DATASET_NAME_MAX),
    ),
    fields=(OVERRIDE,),
    apply=lambda values, context: change_override(
        tenant=values["tenant"], dataset=values["dataset"], values=values["override"], context=context
    ),
    outcome=shapes.DecisionSerializer,
    describe=_decided,
)
OVERRIDE_ACTIONS = (
    replace(
        SET_OVERRIDE,
        name="change",
        label="Change",
        about="Changes the overrides of the selected datasets. Empty fields keep their value.",
        of_rows=_override_rows,
        initial=_override_initial,
    ),
    replace(
        SET_OVERRIDE,
        name="remove",
        label="Remove",
        about="Removes the overrides of the selected datasets; rules follow their load again.",
        fields=(),
        of_rows=lambda rows: [{**place, "override": None} for place in _override_rows(rows)],
    ),
    SET_OVERRIDE,
)
DRAIN = OperatorAction(
    name="drain",
    operation="drain_instance",
    label="Drain",
    about="Stops new pushes to the selected instances, which flush and exit. The preview shows what moves.",
    targets=(
        Texts("instances", "Instances", "Names.", length_max=NAME_MAX, count_max=NEW_INSTANCES_MAX, is_required=True),
    ),
    apply=_drain,
    outcome=shapes.DoneSerializer,
    of_rows=lambda rows: [{"instances": [row.name for row in rows]}],
    fits=lambda row: row.left_at_ms is None and row.state == Instance.State.ACTIVE,
    describe=_fleet,
)
SIZE_RING = OperatorAction(
    operation="size_ring",
    label="Add shards",
    about="Adds shards to the ring before the fleet grows: most series move once, not with each new instance.",
    fields=(
        Number(
            "shards",
            "Minimum shards",
            "Most series move once, immediately.",
            low=1,
            high=SHARDS_MAX,
            is_required=True,
        ),
    ),
    apply=_size_ring,
    outcome=shapes.DoneSerializer,
    describe=_fleet,
)
INSTANCE_ACTIONS = (DRAIN, SIZE_RING)
