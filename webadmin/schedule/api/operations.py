"""Operators' lists and actions over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from engine.protocol.fields import COUNT_MAX, Fields
from webadmin.base.actions.api import ERRORS, OperatorView, post_action
from webadmin.schedule.action_fields import JOBS
from webadmin.schedule.actions import DECIDE, PAUSE, SET_LIMIT
from webadmin.schedule.api import operation_messages as messages
from webadmin.schedule.api import operation_serializers as shapes
from webadmin.schedule.breakages import merging_is_broken
from webadmin.schedule.command_log import read_time
from webadmin.schedule.isolation_stops import open_stops
from webadmin.schedule.operation_models import IsolationStop, LimitChange, Pause
from webadmin.schedule.pauses import pauses_in_force
from webadmin.schedule.register import parked_jobs
from webadmin.schedule.wall_times import WallTimes, wall_times

ROWS_MAX = 200
"""Rows per answer; ``before`` (the last row's id) requests the next ones."""
BEFORE = OpenApiParameter("before", int, description="only rows with a smaller id")


class LimitsView(OperatorView):
    """Limits: what was set, by whom, and setting one."""

    post = post_action(SET_LIMIT)

    @extend_schema(
        operation_id="list_limits", parameters=[BEFORE], responses={200: shapes.LimitListSerializer, **ERRORS}
    )
    def get(self, request: Request) -> Response:
        """List what was set, the last first."""
        rows = list(LimitChange.objects.order_by("-id").filter(id__lt=before_id(request))[:ROWS_MAX])
        walls = _walls(rows)
        return Response({"limits": [messages.limit_to_json(row, walls) | {"id": row.id} for row in rows]})


class PausesView(OperatorView):
    """Pauses in force, and pausing or draining a scope."""

    post = post_action(PAUSE)

    @extend_schema(operation_id="list_pauses", responses={200: shapes.PauseListSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """List what is paused or draining now."""
        rows = list(pauses_in_force(read_time().now_ms).order_by("id"))
        walls = _walls(rows)
        return Response({"pauses": [messages.pause_to_json(row, walls) for row in rows]})


class ParkedView(OperatorView):
    """Parked jobs."""

    @extend_schema(
        operation_id="list_parked_jobs",
        parameters=[BEFORE, JOBS.serializer_class()],
        responses={200: shapes.ParkedListSerializer, **ERRORS},
    )
    def get(self, request: Request) -> Response:
        """List parked jobs with their blocks and the reason, the newest first."""
        given: dict[str, Any] = dict(request.query_params.items())
        given.pop("before", None)
        for name in ("shard", "level"):
            if given.get(name, "").isdecimal():
                given[name] = int(given[name])
        wanted = JOBS.read(Fields("$", {"filter": given | {"all": True}}))
        jobs = parked_jobs(wanted).filter(id__lt=before_id(request)).order_by("-id")[:ROWS_MAX]
        return Response({"jobs": messages.parked_to_json(jobs)})


class IsolationView(OperatorView):
    """Where quarantine is stopped, and the decision that ends a stop."""

    post = post_action(DECIDE)

    @extend_schema(operation_id="isolation", responses={200: shapes.IsolationSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """Return the stops that wait for a decision, by lane and place."""
        stops = open_stops()
        walls = _walls(stops)
        return Response({"stops": [messages.stop_to_json(stop, walls) for stop in stops]})


class BreakagesView(OperatorView):
    """Whether merging is broken in a build."""

    @extend_schema(operation_id="list_breakages", responses={200: shapes.BreakageListSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """List the builds that fail too many recent jobs with one error class; isolation rests for them."""
        found = merging_is_broken()
        fields = ("build", "error_class", "failed_jobs", "jobs")
        return Response({"breakages": [{name: getattr(one, name) for name in fields} for one in found]})


def _walls(rows: Sequence[LimitChange | Pause | IsolationStop]) -> WallTimes:
    return wall_times(row.command_index for row in rows)


def before_id(request: Request) -> int:
    """Return the id below which rows are requested."""
    given = request.query_params.get("before", "")
    return min(int(given), COUNT_MAX) if given.isdecimal() else COUNT_MAX
