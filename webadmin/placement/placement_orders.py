"""The actions of operators on placement in the admin: forms for the services."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.placement.errors import PinRefused
from engine.placement.model import SHARDS_MAX, LoadBalancing
from engine.protocol.fields import COUNT_MAX
from webadmin.adminkit.order_fields import choice_field, number_field, text_field
from webadmin.adminkit.orders import OperatorOrder, OrderForm, Outcome
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.placement.models import Instance, PlacementLimit, PlacementOverride
from webadmin.placement.operator_settings import limit_values, override_values
from webadmin.placement.rule_models import DATASET_NAME_MAX
from webadmin.placement.services.decide_placement import Decision, change_limits, change_override
from webadmin.placement.services.forecast_placement import FleetChange, MovementForecast, what_if
from webadmin.placement.services.instances import current_ring, drain_instance, size_ring
from webadmin.schedule.services.operation import Order

Values = Mapping[str, Any]
WINDOW_MAX_S = 30 * 86_400
WAYS = [("", "---------"), *((one.name.lower(), one.name.lower().replace("_", " ")) for one in LoadBalancing)]
PIN_TEXT_MAX = 4_000


class LimitForm(OrderForm):
    """Placement limits; empty fields keep their value."""

    tenant_shards = number_field("Tenant's shards", "At most so many for all datasets; 0: all.", low=0, high=SHARDS_MAX)
    default_dataset_shards = number_field(
        "A new dataset's shards", "Until something is known of it.", low=0, high=SHARDS_MAX
    )
    dataset_shards_min = number_field("A dataset's shards at least", "", low=1, high=SHARDS_MAX)
    dataset_shards_max = number_field("A dataset's shards at most", "", low=1, high=SHARDS_MAX)
    load_balancing = choice_field(
        "How a shard is picked", WAYS, "Dynamic: by fingerprint, or round robin while a shard is hot.", required=False
    )
    unit_bytes = number_field("Bytes/s of one shard", "What a dataset may write per shard.", low=1, high=COUNT_MAX)
    burst_window_s = number_field(
        "Burst window in seconds", "A rise within it adds more than is missing.", low=1, high=WINDOW_MAX_S
    )
    decay_window_s = number_field("Decay window in seconds", "So long a need is kept.", low=1, high=WINDOW_MAX_S)
    field_order = (
        "tenant",
        "tenant_shards",
        "dataset_shards_min",
        "dataset_shards_max",
        "default_dataset_shards",
        "unit_bytes",
        "load_balancing",
        "burst_window_s",
        "decay_window_s",
        "why",
    )


class TenantLimitForm(LimitForm):
    """Placement limits of a tenant, with its name."""

    tenant = text_field("Tenant", "Empty: everybody without numbers of their own.", TENANT_NAME_MAX)


class OverrideForm(OrderForm):
    """The placement of a dataset; empty fields keep their value."""

    shards = text_field("Pin to shards", "Numbers from 1, with commas. Nothing else decides then.", PIN_TEXT_MAX)
    dataset_shards = number_field("Shards", "Instead of what its load asks for.", low=0, high=SHARDS_MAX)
    tenant_shards = number_field("Tenant's shards", "For this dataset alone.", low=0, high=SHARDS_MAX)
    load_balancing = choice_field("How a shard is picked", WAYS, required=False)
    field_order = ("tenant", "dataset", "shards", "dataset_shards", "tenant_shards", "load_balancing", "why")


class NewOverrideForm(OverrideForm):
    """The placement of a dataset, with its name."""

    tenant = text_field("Tenant", "", TENANT_NAME_MAX, required=True)
    dataset = text_field("Dataset", "The service's name.", DATASET_NAME_MAX)


class RingSizeForm(OrderForm):
    """The form of the number of shards."""

    shards = number_field(
        "Shards at least", "Most series move once, now, instead of later.", low=1, high=SHARDS_MAX, required=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementAnswers:
    """Decisions on the action's page: the changes, and for a dry run what would move."""

    decisions: Sequence[Decision]

    def to_json(self) -> dict[str, Any]:
        """Return the changes by tenant and dataset."""
        if not any(decision.is_dry_run for decision in self.decisions):
            return {"changed": [_place(one) for one in self.decisions if one.before != one.after]}
        values = [row for one in self.decisions for row in _values(one)]
        told: dict[str, Any] = {"values": values}
        forecast = [one.movement.to_json() for one in self.decisions if one.movement is not None]
        told |= forecast[0] if len(forecast) == 1 else {}
        if not values:
            told["notes"] = ["Nothing changes: it is so already."]
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAnswer:
    """The outcome of an action on the fleet, or what it would move."""

    movement: MovementForecast | None = None
    changed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the outcome or the prediction."""
        return self.movement.to_json() if self.movement is not None else {"changed": list(self.changed)}


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


def _told(values: Values, name: str) -> str:
    if name not in values:
        return "not set"
    if name == "load_balancing":
        return LoadBalancing(values[name]).name.lower().replace("_", " ")
    return ", ".join(map(str, values[name])) if isinstance(values[name], list) else str(values[name])


def _order(values: Values, actor: str, is_dry_run: bool) -> Order:
    return Order(actor=actor, why=values["why"], is_dry_run=is_dry_run)


def _given(values: Values, leave: Sequence[str] = ("why", "tenant", "dataset")) -> dict[str, Any]:
    given = {name: value for name, value in values.items() if name not in leave and value not in (None, "")}
    if "shards" in given:
        given["shards"] = _shards(given["shards"])
    return given


def _shards(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if any(not (part.isascii() and part.isdigit() and len(part) < 8) for part in parts):
        raise PinRefused(f"shards {text!r}: give numbers from 1, with commas")
    return [int(part) for part in parts]


def _set_limits(rows: Sequence[object], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    order = _order(values, actor, is_dry_run)
    return PlacementAnswers(decisions=[change_limits(tenant=values["tenant"], values=_given(values), order=order)])


def _each_limit(take: Callable[[Values], Values | None]) -> Callable[..., Outcome]:
    def give(rows: Sequence[PlacementLimit], values: Values, actor: str, is_dry_run: bool) -> Outcome:
        order = _order(values, actor, is_dry_run)
        return PlacementAnswers(
            decisions=[change_limits(tenant=row.tenant, values=take(values), order=order) for row in rows]
        )

    return give


def _set_override(rows: Sequence[object], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    order, place = _order(values, actor, is_dry_run), {"tenant": values["tenant"], "dataset": values["dataset"]}
    return PlacementAnswers(decisions=[change_override(**place, values=_given(values), order=order)])


def _each_override(take: Callable[[Values], Values | None]) -> Callable[..., Outcome]:
    def give(rows: Sequence[PlacementOverride], values: Values, actor: str, is_dry_run: bool) -> Outcome:
        order = _order(values, actor, is_dry_run)
        decided = [
            change_override(tenant=row.tenant, dataset=row.dataset, values=take(values), order=order) for row in rows
        ]
        return PlacementAnswers(decisions=decided)

    return give


def _drain(rows: Sequence[Instance], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    names = [row.name for row in rows]
    if is_dry_run:
        return FleetAnswer(movement=what_if(FleetChange(remove=names)))
    return FleetAnswer(changed=tuple(n for n in names if drain_instance(n, actor=actor, reason=values["why"])))


def _size(rows: Sequence[object], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    before = current_ring()
    if is_dry_run:
        return FleetAnswer(movement=what_if(FleetChange(shards=max(values["shards"], before.shards))))
    after = size_ring(values["shards"], actor=actor, reason=values["why"])
    return FleetAnswer(changed=("the ring",) if after.version != before.version else ())


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


def _nothing(values: Values) -> None:
    """Return None, which removes the value that was set."""


LIMIT_ORDERS = (
    OperatorOrder(
        name="change",
        label="Change",
        about="Other numbers, from the next round of the rules on. Those left empty keep their value.",
        form=LimitForm,
        give=_each_limit(_given),
        initial=_limit_initial,
    ),
    OperatorOrder(
        name="take-back",
        label="Take back",
        about="Takes back all that was set here: what holds for everybody, or what is built in, holds again.",
        give=_each_limit(_nothing),
    ),
    OperatorOrder(
        name="set",
        label="Set limits",
        about="For one tenant or for everybody. The preview says which datasets would move.",
        form=TenantLimitForm,
        give=_set_limits,
        of_rows=False,
    ),
)
OVERRIDE_ORDERS = (
    OperatorOrder(
        name="change",
        label="Change",
        about="Decides otherwise for the chosen datasets. What is left empty keeps its value.",
        form=OverrideForm,
        give=_each_override(_given),
        initial=_override_initial,
    ),
    OperatorOrder(
        name="take-back",
        label="Take back",
        about="Leaves the chosen datasets to their load again.",
        give=_each_override(_nothing),
    ),
    OperatorOrder(
        name="set",
        label="Override or pin a dataset",
        about="Decides for one dataset, whatever it writes. The preview says what would move.",
        form=NewOverrideForm,
        give=_set_override,
        of_rows=False,
    ),
)
INSTANCE_ORDERS = (
    OperatorOrder(
        name="drain",
        label="Drain",
        about="The chosen instances get nothing new, flush what they have and go. The preview says what moves.",
        give=_drain,
        fits=lambda row: row.left_at_ms is None and row.state == Instance.State.ACTIVE,
    ),
    OperatorOrder(
        name="size-ring",
        label="More shards",
        about="Gives the ring more shards ahead of a growth: most series move once, and not when instances join.",
        form=RingSizeForm,
        give=_size,
        of_rows=False,
    ),
)
