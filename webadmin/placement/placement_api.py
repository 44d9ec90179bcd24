"""Placement over HTTP for operators: rules and their history, limits, overrides, the fleet, and what a change moves."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from engine.placement.model import SHARDS_MAX, TOKENS_DEFAULT, TOKENS_MAX
from engine.protocol.fields import COUNT_MAX, Fields
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.placement import placement_messages as shapes
from webadmin.placement.models import (
    NAME_MAX,
    ZONE_MAX,
    Instance,
    PlacementLimit,
    PlacementOverride,
    RuleChange,
    RulesHead,
)
from webadmin.placement.operator_settings import LIMIT_NAMES, OVERRIDE_NAMES, limit_values, override_values
from webadmin.placement.rule_changes import rule_json
from webadmin.placement.rule_models import DATASET_NAME_MAX
from webadmin.placement.services.build_placement_rules import rules_of
from webadmin.placement.services.decide_placement import change_limits, change_override
from webadmin.placement.services.forecast_placement import NEW_INSTANCES_MAX, FleetChange, what_if
from webadmin.placement.services.instances import current_ring, drain_instance, size_ring
from webadmin.schedule.api.operations import ERRORS, ROWS_MAX, OperatorView

WINDOW_MAX_S = 30 * 86_400
BEFORE = OpenApiParameter("before", int, description="only rows with a smaller id")
TENANT = OpenApiParameter("tenant", str, description="only this tenant's")
DATASET = OpenApiParameter("dataset", str, description="only this dataset's; with a tenant")
AFTER = OpenApiParameter("after", str, description="only datasets behind this name; with a tenant")


class PlacementRulesView(OperatorView):
    """The rules in force."""

    @extend_schema(
        operation_id="list_placement_rules",
        parameters=[TENANT, AFTER],
        responses={200: shapes.RulesSerializer, **ERRORS},
    )
    def get(self, request: Request) -> Response:
        """List what is decided for datasets, by tenant and name."""
        rules = rules_of(RulesHead.objects.filter(id=1).first() or RulesHead())
        tenant, after = request.query_params.get("tenant"), request.query_params.get("after", "")
        keys = [key for key in sorted(rules.datasets) if tenant in (None, key[0]) and (not after or key[1] > after)]
        rows = [
            {"tenant": key[0], "dataset": key[1]} | (rule_json(rules.datasets[key]) or {}) for key in keys[:ROWS_MAX]
        ]
        return Response({"version": rules.version, "created_at_ms": rules.created_at_ms, "datasets": rows})


class PlacementHistoryView(OperatorView):
    """What the rules changed, and why."""

    @extend_schema(
        operation_id="list_placement_changes",
        parameters=[BEFORE, TENANT, DATASET],
        responses={200: shapes.HistorySerializer, **ERRORS},
    )
    def get(self, request: Request) -> Response:
        """List changes of rules, the last first."""
        given = request.query_params
        wanted = {name: given[name] for name in ("tenant", "dataset") if name in given and "\0" not in given[name]}
        rows = RuleChange.objects.filter(id__lt=_before(request), **wanted).order_by("-id")[:ROWS_MAX]
        names = ("id", "version", "at_ms", "tenant", "dataset", "before", "after", "reason")
        return Response({"changes": [{name: getattr(row, name) for name in names} for row in rows]})


class PlacementLimitsView(OperatorView):
    """How tenants' datasets are placed."""

    @extend_schema(operation_id="list_placement_limits", responses={200: shapes.LimitsListSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """List what is set for everybody (tenant "") and for single tenants."""
        rows = PlacementLimit.objects.all()[:ROWS_MAX]
        return Response({"limits": [{"tenant": row.tenant, "numbers": limit_values(row)} for row in rows]})

    @extend_schema(
        operation_id="change_placement_limits",
        request=shapes.ChangeLimitsSerializer,
        responses={200: shapes.DecisionSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Set numbers for everybody or a tenant, from the next round on; or preview what would move."""
        fields, order = self.read(shapes.ChangeLimitsSerializer)
        tenant = fields.text("tenant", TENANT_NAME_MAX, default="")
        return Response(change_limits(tenant=tenant, values=_numbers(fields), order=order).to_json())


class PlacementOverridesView(OperatorView):
    """What is decided for single datasets."""

    @extend_schema(operation_id="list_placement_overrides", responses={200: shapes.OverrideListSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """List overrides and pins."""
        rows = PlacementOverride.objects.all()[:ROWS_MAX]
        return Response(
            {
                "overrides": [
                    {"tenant": row.tenant, "dataset": row.dataset, "override": override_values(row)} for row in rows
                ]
            }
        )

    @extend_schema(
        operation_id="change_placement_override",
        request=shapes.ChangeOverrideSerializer,
        responses={200: shapes.DecisionSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Override or pin one dataset, from the next round on; or preview what would move."""
        fields, order = self.read(shapes.ChangeOverrideSerializer)
        decision = change_override(
            tenant=fields.text("tenant", TENANT_NAME_MAX, empty=False),
            dataset=fields.text("dataset", DATASET_NAME_MAX),
            values=_override(fields),
            order=order,
        )
        return Response(decision.to_json())


class PlacementInstancesView(OperatorView):
    """The fleet of segment writers."""

    @extend_schema(operation_id="list_instances", responses={200: shapes.FleetSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """List the instances that are there, with their zones and how many shards each hosts."""
        ring = current_ring()
        hosted = ring.tables.get("", ())
        rows = [
            {
                "instance": row.name,
                "zone": row.zone,
                "address": row.address,
                "tokens": row.tokens,
                "state": row.state,
                "heartbeat_at_ms": row.heartbeat_at_ms,
                "shards": hosted.count(row.name),
            }
            for row in Instance.objects.filter(left_at_ms=None)[:ROWS_MAX]
        ]
        return Response({"ring_version": ring.version, "shards": ring.shards, "instances": rows})


class DrainInstanceView(OperatorView):
    """Letting an instance leave."""

    @extend_schema(
        operation_id="drain_instance", request=shapes.DrainSerializer, responses={200: shapes.DoneSerializer, **ERRORS}
    )
    def post(self, request: Request) -> Response:
        """Let an instance flush what it has and go; or preview what moves."""
        fields, order = self.read(shapes.DrainSerializer)
        name = fields.text("instance", NAME_MAX, empty=False)
        if order.is_dry_run:
            return Response(_forecast(FleetChange(remove=(name,))))
        return Response({"changed": drain_instance(name, actor=order.actor, reason=order.why), "movement": None})


class RingSizeView(OperatorView):
    """The number of shards."""

    @extend_schema(
        operation_id="size_ring", request=shapes.RingSizeSerializer, responses={200: shapes.DoneSerializer, **ERRORS}
    )
    def post(self, request: Request) -> Response:
        """Give the ring so many shards at least, ahead of a growth; or preview what moves."""
        fields, order = self.read(shapes.RingSizeSerializer)
        shards = fields.integer("shards", 1, SHARDS_MAX)
        before = current_ring()
        if order.is_dry_run:
            return Response(_forecast(FleetChange(shards=max(shards, before.shards))))
        after = size_ring(shards, actor=order.actor, reason=order.why)
        return Response({"changed": after.version != before.version, "movement": None})


class WhatIfView(OperatorView):
    """Dry runs of changes of the fleet."""

    @extend_schema(
        operation_id="placement_what_if",
        request=shapes.WhatIfSerializer,
        responses={200: shapes.MovementForecastSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Say what moves if instances come and go, or if the ring gets another number of shards."""
        fields = Fields.of(request.data, "$")
        return Response(what_if(_fleet_change(fields)).to_json())


def _forecast(change: FleetChange) -> dict[str, Any]:
    return {"changed": False, "movement": what_if(change).to_json()}


def _fleet_change(fields: Fields) -> FleetChange:
    def texts(name: str, length_max: int) -> tuple[str, ...]:
        items = fields.items(name, NEW_INSTANCES_MAX, default=())
        return tuple(Fields(fields.path, {name: item}).text(name, length_max) for item in items)

    shards = fields.values.get("shards")
    return FleetChange(
        add=texts("add", ZONE_MAX),
        remove=texts("remove", NAME_MAX),
        tokens=fields.integer("tokens", 1, TOKENS_MAX, default=TOKENS_DEFAULT),
        shards=None if shards is None else fields.integer("shards", 1, SHARDS_MAX),
    )


def _numbers(fields: Fields) -> dict[str, Any] | None:
    """Read limits; null removes a tenant's own."""
    if "numbers" not in fields.values:
        raise fields.error("numbers", "numbers to set, or null to take back what was set")
    numbers = fields.optional("numbers")
    if numbers is None:
        return None
    return {name: _limit(numbers, name) for name in numbers.values}


def _limit(numbers: Fields, name: str) -> Any:
    if name not in LIMIT_NAMES:
        raise numbers.error(name, f"one of {', '.join(LIMIT_NAMES)} is expected")
    if numbers.values[name] is None:
        return None
    if name == "load_balancing":
        return numbers.text(name, NAME_MAX)
    if name == "may_leave_zone":
        if not isinstance(numbers.values[name], bool):
            raise numbers.error(name, "true or false is expected")
        return numbers.values[name]
    if name == "unit_bytes":
        return numbers.integer(name, 1, COUNT_MAX)
    return numbers.integer(name, 0, WINDOW_MAX_S if name.endswith("_s") else SHARDS_MAX)


def _override(fields: Fields) -> dict[str, Any] | None:
    """Read an override; null removes it."""
    if "override" not in fields.values:
        raise fields.error("override", "what to decide, or null to take it back")
    given = fields.optional("override")
    if given is None:
        return None
    found: dict[str, Any] = {}
    for name in given.values:
        if name not in OVERRIDE_NAMES:
            raise given.error(name, f"one of {', '.join(OVERRIDE_NAMES)} is expected")
        if given.values[name] is None:
            found[name] = None
        elif name == "shards":
            items = given.items(name, SHARDS_MAX)
            found[name] = [Fields(given.path, {name: item}).integer(name, 1, SHARDS_MAX) for item in items]
        elif name == "load_balancing":
            found[name] = given.text(name, NAME_MAX)
        else:
            found[name] = given.integer(name, 0, SHARDS_MAX)
    return found


def _before(request: Request) -> int:
    text = request.query_params.get("before", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else COUNT_MAX
