"""Delete requests over HTTP."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from webadmin.base.actions.api import ERRORS, OperatorView, post_action
from webadmin.lanes.profiles.actions.deletion import REQUEST_DELETION
from webadmin.lanes.profiles.deletion_queries import request_progress
from webadmin.lanes.profiles.models import DeleteRequest
from webadmin.schedule.api.operations import BEFORE, ROWS_MAX, before_id
from webadmin.schedule.wall_times import WallTimes, wall_times


class DeleteRequestListSerializer(serializers.Serializer[Any]):
    """Delete requests, the last first."""

    requests = serializers.ListField(child=serializers.DictField())


class DeleteRequestsView(OperatorView):
    """Delete requests: what was requested, and a new one."""

    post = post_action(REQUEST_DELETION)

    @extend_schema(
        operation_id="list_delete_requests",
        parameters=[BEFORE],
        responses={200: DeleteRequestListSerializer, **ERRORS},
    )
    def get(self, request: Request) -> Response:
        """List requests with their state and certificates, the last first."""
        rows = DeleteRequest.objects.select_related("tenant").prefetch_related("certificates").order_by("-id")
        rows = rows.filter(id__lt=before_id(request))
        found = list(rows[:ROWS_MAX])
        indexes = [row.command_index for row in found]
        indexes += [each.command_index for row in found for each in row.certificates.all()]
        walls = wall_times(indexes)
        return Response({"requests": [request_to_json(row, walls) for row in found]})


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
