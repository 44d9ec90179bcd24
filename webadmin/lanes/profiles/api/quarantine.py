"""Quarantined blocks over HTTP."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from webadmin.base.actions.api import ERRORS, OperatorView
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.schedule.api.operation_serializers import WALL_TIME
from webadmin.schedule.api.operations import BEFORE, ROWS_MAX, before_id
from webadmin.schedule.models import Job
from webadmin.schedule.wall_times import WallTimes, wall_times


class QuarantineSerializer(serializers.Serializer[Any]):
    """A block kept apart."""

    id = serializers.IntegerField()
    block = serializers.CharField()
    job = serializers.CharField()
    tenant = serializers.CharField(allow_blank=True)
    shard = serializers.IntegerField()
    level = serializers.IntegerField()
    cause = serializers.CharField()
    error_class = serializers.CharField()
    message = serializers.CharField(allow_blank=True)
    object = serializers.CharField(allow_blank=True)
    section = serializers.CharField(allow_blank=True)
    offset = serializers.IntegerField()
    build = serializers.CharField(allow_blank=True)
    attempts = serializers.IntegerField()
    at_ms = serializers.IntegerField(help_text=WALL_TIME)
    command = serializers.IntegerField()


class QuarantineListSerializer(serializers.Serializer[Any]):
    quarantine = QuarantineSerializer(many=True)


class QuarantineView(OperatorView):
    """Quarantined blocks."""

    @extend_schema(
        operation_id="list_quarantine",
        parameters=[BEFORE],
        responses={200: QuarantineListSerializer, **ERRORS},
    )
    def get(self, request: Request) -> Response:
        """List quarantined blocks with what is known of their damage, the newest first."""
        held = Quarantine.objects.filter(released_at_ms=None, id__lt=before_id(request)).select_related("job", "block")
        rows = list(held[:ROWS_MAX])
        walls = wall_times(row.command_index for row in rows)
        return Response({"quarantine": [_to_json(row, walls) for row in rows]})


def _to_json(row: Quarantine, walls: WallTimes) -> dict[str, Any]:
    job: Job = row.job
    return {
        "id": row.id,
        "block": row.block.ulid,
        "job": job.name,
        "tenant": job.tenant,
        "shard": job.shard,
        "level": job.level,
        "cause": row.cause,
        "error_class": row.error_class,
        "message": row.message,
        "object": row.object,
        "section": row.section,
        "offset": row.offset,
        "build": row.build,
        "attempts": row.attempts,
        "at_ms": walls.of(row.at_ms, row.command_index),
        "command": row.command_index,
    }
