"""Placement over HTTP for operators: rules and their history, limits, overrides, the fleet, and what a change moves."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from engine.placement.model import SHARDS_MAX, TOKENS_DEFAULT, TOKENS_MAX
from engine.protocol.fields import COUNT_MAX, Fields
from webadmin.base.actions.api import ERRORS, OperatorView, post_action
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
from webadmin.placement.operator_settings import limit_values, override_values
from webadmin.placement.placement_actions import SET_LIMITS, SET_OVERRIDE
from webadmin.placement.rule_changes import rule_json
from webadmin.placement.services.build_placement_rules import rules_of
from webadmin.placement.services.foresee_placement import NEW_INSTANCES_MAX, FleetChange, what_if
from webadmin.placement.services.instances import current_ring
from webadmin.schedule.api.operations import ROWS_MAX

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

    post = post_action(SET_LIMITS)

    @extend_schema(operation_id="list_placement_limits", responses={200: shapes.LimitsListSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """List what is set for everybody (tenant "") and for single tenants."""
        rows = PlacementLimit.objects.all()[:ROWS_MAX]
        return Response({"limits": [{"tenant": row.tenant, "numbers": limit_values(row)} for row in rows]})


class PlacementOverridesView(OperatorView):
    """What is decided for single datasets."""

    post = post_action(SET_OVERRIDE)

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


class WhatIfView(OperatorView):
    """Dry runs of changes of the fleet."""

    @extend_schema(
        operation_id="placement_what_if",
        request=shapes.WhatIfSerializer,
        responses={200: shapes.ForesightSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Say what moves if instances come and go, or if the ring gets another number of shards."""
        fields = Fields.of(request.data, "$")
        return Response(what_if(_fleet_change(fields)).to_json())


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


def _before(request: Request) -> int:
    text = request.query_params.get("before", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else COUNT_MAX
