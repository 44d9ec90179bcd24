"""HTTP API to list and set push limits; uses the same service as the admin."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from engine.protocol.fields import COUNT_MAX
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.ingest.models import PushLimitChange
from webadmin.ingest.services.change_push_limit import change_push_limit
from webadmin.ingest.tenant_limits import PushLimitName
from webadmin.schedule.api.operation_messages import integer_or_null
from webadmin.schedule.api.operation_serializers import OrderSerializer
from webadmin.schedule.api.operations import ERRORS, ROWS_MAX, OperatorView

NAMES = [name.value for name in PushLimitName]


class PushLimitSerializer(serializers.Serializer[Any]):
    """A limit and whose it is."""

    limit = serializers.ChoiceField(choices=NAMES)
    tenant = serializers.CharField(required=False, allow_blank=True, help_text="default: everybody without their own")
    value = serializers.IntegerField(allow_null=True, help_text="null takes back what was set")


class PushLimitRowSerializer(PushLimitSerializer):
    """A value as it was set."""

    in_force = serializers.BooleanField()
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    why = serializers.CharField()


class PushLimitListSerializer(serializers.Serializer[Any]):
    limits = PushLimitRowSerializer(many=True)


class ChangePushLimitSerializer(PushLimitSerializer, OrderSerializer):
    """A limit to set."""


class PushLimitOutcomeSerializer(serializers.Serializer[Any]):
    """What holds before and after."""

    limit = serializers.CharField()
    tenant = serializers.CharField(allow_blank=True)
    before = serializers.IntegerField()
    after = serializers.IntegerField()
    dry_run = serializers.BooleanField()
    changed = serializers.BooleanField()


class PushLimitsView(OperatorView):
    """What tenants may push."""

    @extend_schema(operation_id="list_push_limits", responses={200: PushLimitListSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """List what was set, the last first."""
        rows = PushLimitChange.objects.order_by("-id")[:ROWS_MAX]
        return Response({"limits": [_row(row) for row in rows]})

    @extend_schema(
        operation_id="change_push_limit",
        request=ChangePushLimitSerializer,
        responses={200: PushLimitOutcomeSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Set a limit for a tenant or for everybody, or preview it."""
        fields, order = self.read(ChangePushLimitSerializer)
        outcome = change_push_limit(
            tenant=fields.text("tenant", TENANT_NAME_MAX, default=""),
            name=PushLimitName(fields.choice("limit", NAMES)),
            value=integer_or_null(fields, "value", COUNT_MAX),
            actor=order.actor,
            why=order.why,
            is_dry_run=order.is_dry_run,
        )
        return Response(outcome.to_json())


def _row(row: PushLimitChange) -> dict[str, object]:
    about = {name: getattr(row, name) for name in ("tenant", "value", "at", "actor", "why")}
    return {"limit": row.name, "in_force": not row.is_superseded} | about
