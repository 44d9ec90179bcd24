"""Push limits over HTTP."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from webadmin.base.actions.api import ERRORS, OperatorView, post_action
from webadmin.base.actions.fields import serializer_of
from webadmin.ingest.actions import LIMIT, SET_PUSH_LIMIT, TENANT, VALUE
from webadmin.ingest.models import PushLimitChange
from webadmin.schedule.api.operations import ROWS_MAX

PushLimitSerializer = serializer_of("PushLimitSerializer", (LIMIT, TENANT, VALUE), "A limit and its tenant.")


class PushLimitRowSerializer(PushLimitSerializer):  # type: ignore[valid-type,misc]  # built from the fields of the action
    """A value as it was set."""

    in_force = serializers.BooleanField()
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    why = serializers.CharField()


class PushLimitListSerializer(serializers.Serializer[Any]):
    limits = PushLimitRowSerializer(many=True)


class PushLimitsView(OperatorView):
    """What tenants may push."""

    post = post_action(SET_PUSH_LIMIT)

    @extend_schema(operation_id="list_push_limits", responses={200: PushLimitListSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """List what was set, the last first."""
        rows = PushLimitChange.objects.order_by("-id")[:ROWS_MAX]
        return Response({"limits": [_row(row) for row in rows]})


def _row(row: PushLimitChange) -> dict[str, object]:
    about = {name: getattr(row, name) for name in ("tenant", "value", "at", "actor", "why")}
    return {"limit": row.name, "in_force": not row.is_superseded} | about
