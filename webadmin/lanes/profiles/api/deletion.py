"""Deletion of data over HTTP: retention, rules, legal holds, delete requests. Uses the services of the admin."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from engine.protocol.fields import COUNT_MAX
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.lanes.profiles.deletion_models import KEEP_DAYS_MAX, SELECTOR_MAX, SERVICE_MAX
from webadmin.lanes.profiles.deletion_queries import request_progress
from webadmin.lanes.profiles.models import DeleteRequest
from webadmin.lanes.profiles.services.delete_requests import (
    DEADLINE_HOURS,
    DEADLINE_HOURS_MAX,
    DeleteOrder,
    request_deletion,
)
from webadmin.lanes.profiles.services.retain import apply_retention
from webadmin.lanes.profiles.services.retention_rules import lift_hold, place_hold, set_retention
from webadmin.schedule.api.operation_messages import flag, integer, integer_or_null
from webadmin.schedule.api.operation_serializers import OrderSerializer
from webadmin.schedule.api.operations import BEFORE, ERRORS, ROWS_MAX, OperatorView
from webadmin.schedule.wall_times import WallTimes, wall_times

BUSY = {409: ERRORS[400]}


class RetentionRuleSerializer(OrderSerializer):
    """How long a tenant's data is kept."""

    tenant = serializers.CharField(required=False, allow_blank=True, help_text="default: everybody without a rule")
    keep_days = serializers.IntegerField(allow_null=True, help_text="0: for ever; null: as everybody's")


class HoldSerializer(OrderSerializer):
    """A legal hold to place or lift."""

    tenant = serializers.CharField()
    lift = serializers.BooleanField(required=False)


class DeleteOrderSerializer(OrderSerializer):
    """Data to delete. It cannot be taken back."""

    tenant = serializers.CharField()
    service = serializers.CharField(required=False, allow_blank=True, help_text="default: every service")
    selector = serializers.CharField(required=False, allow_blank=True, help_text='series that match {name="value"}')
    from_ms = serializers.IntegerField(required=False, allow_null=True, help_text="time of the data, included")
    until_ms = serializers.IntegerField(required=False, allow_null=True, help_text="time of the data, not included")
    deadline_hours = serializers.IntegerField(required=False, help_text="until the objects are rewritten")


class ReportSerializer(serializers.Serializer[Any]):
    """What was done, or would be in a dry run."""

    dry_run = serializers.BooleanField()


class DeleteReportSerializer(ReportSerializer):
    """What is hidden, or would be; a dry run names what the tenant has beside profiles."""

    kept = serializers.ListField(child=serializers.CharField(), required=False, help_text="what is not touched")


class DeleteRequestListSerializer(serializers.Serializer[Any]):
    """Delete requests, the last first."""

    requests = serializers.ListField(child=serializers.DictField())


class RetentionView(OperatorView):
    """A run of retention, now."""

    @extend_schema(operation_id="apply_retention", request=OrderSerializer, responses={200: ReportSerializer, **ERRORS})
    def post(self, request: Request) -> Response:
        """Drop what is older than its tenant keeps it."""
        _, order = self.read(OrderSerializer)
        return Response(apply_retention(order=order).to_json())


class RetentionRulesView(OperatorView):
    """How long data is kept."""

    @extend_schema(
        operation_id="set_retention", request=RetentionRuleSerializer, responses={200: ReportSerializer, **ERRORS}
    )
    def post(self, request: Request) -> Response:
        """Set or take back a rule."""
        fields, order = self.read(RetentionRuleSerializer)
        tenant = fields.text("tenant", TENANT_NAME_MAX, default="")
        keep_days = integer_or_null(fields, "keep_days", KEEP_DAYS_MAX)
        return Response(set_retention(tenant=tenant, keep_days=keep_days, order=order).to_json())


class HoldsView(OperatorView):
    """Legal holds."""

    @extend_schema(
        operation_id="change_hold", request=HoldSerializer, responses={200: ReportSerializer, **ERRORS, **BUSY}
    )
    def post(self, request: Request) -> Response:
        """Place a hold, or lift it."""
        fields, order = self.read(HoldSerializer)
        tenant = fields.text("tenant", TENANT_NAME_MAX, empty=False)
        if flag(fields, "lift"):
            changed = lift_hold(tenant=tenant, at=timezone.now(), order=order)
        else:
            changed = place_hold(tenant=tenant, order=order)
        return Response({"tenant": tenant, "changed": changed, "dry_run": order.is_dry_run})


class DeleteRequestsView(OperatorView):
    """Delete requests: what was asked for, and asking."""

    @extend_schema(
        operation_id="list_delete_requests",
        parameters=[BEFORE],
        responses={200: DeleteRequestListSerializer, **ERRORS},
    )
    def get(self, request: Request) -> Response:
        """List requests with their state and certificates, the last first."""
        rows = DeleteRequest.objects.select_related("tenant").prefetch_related("certificates").order_by("-id")
        before = request.query_params.get("before", "")
        if before.isascii() and before.isdigit() and len(before) <= 18:
            rows = rows.filter(id__lt=int(before))
        found = list(rows[:ROWS_MAX])
        indexes = [row.command_index for row in found]
        indexes += [each.command_index for row in found for each in row.certificates.all()]
        walls = wall_times(indexes)
        return Response({"requests": [request_to_json(row, walls) for row in found]})

    @extend_schema(
        operation_id="request_deletion",
        request=DeleteOrderSerializer,
        responses={200: DeleteReportSerializer, **ERRORS, **BUSY},
    )
    def post(self, request: Request) -> Response:
        """Hide data at once and have it rewritten by the deadline."""
        fields, order = self.read(DeleteOrderSerializer)
        wanted = DeleteOrder(
            tenant=fields.text("tenant", TENANT_NAME_MAX, empty=False),
            service=fields.text("service", SERVICE_MAX, default=""),
            selector=fields.text("selector", SELECTOR_MAX, default=""),
            from_ms=integer(fields, "from_ms", COUNT_MAX),
            until_ms=integer(fields, "until_ms", COUNT_MAX),
            deadline_hours=fields.integer("deadline_hours", 1, DEADLINE_HOURS_MAX, default=DEADLINE_HOURS),
        )
        return Response(request_deletion(wanted, order=order).to_json())


def request_to_json(row: DeleteRequest, walls: WallTimes) -> dict[str, Any]:
    """Return a request as the API shows it, with wall-clock times."""
    return {
        "id": row.id,
        "tenant": row.tenant.name,
        "service": row.service,
        "selector": row.selector,
        "from_ms": row.from_ms,
        "until_ms": row.until_ms,
        "state": row.state,
        "command": row.command_index,
        "requested_at_ms": walls.of(row.requested_at_ms, row.command_index),
        "deadline_at_ms": walls.of(row.deadline_at_ms),
        "hidden_blocks": row.hidden_blocks,
        "hidden_datasets": row.hidden_datasets,
        "waits_for": list(request_progress(row).waits_for()),
        "actor": row.actor,
        "why": row.why,
        "certificates": [
            {"command": each.command_index, "issued_at_ms": walls.of(each.issued_at_ms, each.command_index)}
            for each in row.certificates.all()
        ],
    }
