"""Operators' actions over HTTP: the same services as the admin's actions and the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from engine.protocol.fields import COUNT_MAX, Fields
from engine.protocol.wire import NAME_MAX
from engine.schedule.pauses import PauseMode
from webadmin.base.access.scopes import MayOperate
from webadmin.schedule.api import operation_messages as messages
from webadmin.schedule.api import operation_serializers as shapes
from webadmin.schedule.api.worker_serializers import ErrorSerializer
from webadmin.schedule.breakages import merging_is_broken
from webadmin.schedule.command_log import read_time
from webadmin.schedule.isolation_stops import open_stops
from webadmin.schedule.lanes import lanes
from webadmin.schedule.operation_models import PLACE_MAX, IsolationStop, LimitChange, Pause
from webadmin.schedule.pauses import pauses_in_force
from webadmin.schedule.register import JobFilter, parked_jobs
from webadmin.schedule.services.adjust_jobs import pin, reset_failures, unpin
from webadmin.schedule.services.cancel_jobs import cancel
from webadmin.schedule.services.change_limit import DURATION_SECONDS_MAX, change_limit
from webadmin.schedule.services.operation import Order
from webadmin.schedule.services.pause_schedule import pause, resume
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.services.return_job_blocks import return_job_blocks
from webadmin.schedule.services.stop_isolation import decide_isolation
from webadmin.schedule.wall_times import WallTimes, wall_times

ERRORS = dict.fromkeys((400, 401, 403, 404, 413, 415), ErrorSerializer)
ROWS_MAX = 200
"""Rows per answer; ``before`` (the last row's id) requests the next ones."""
JOB_ORDER: dict[str, Any] = {
    "request": shapes.JobOrderSerializer,
    "responses": {200: shapes.OutcomeSerializer, **ERRORS},
}
BEFORE = OpenApiParameter("before", int, description="only rows with a smaller id")


class OperatorView(APIView):
    """Everything here needs the scope ``operate``."""

    permission_classes = [MayOperate]

    def read(self, shape: type[Serializer[Any]]) -> tuple[Fields, Order]:
        """Return the fields of a request's body, validated by this shape, and the actor, reason and dry-run flag."""
        return messages.read_order(self.request, shape)


class LimitsView(OperatorView):
    """Limits: what was set, by whom, and setting one."""

    @extend_schema(
        operation_id="list_limits", parameters=[BEFORE], responses={200: shapes.LimitListSerializer, **ERRORS}
    )
    def get(self, request: Request) -> Response:
        """List what was set, the last first."""
        rows = list(LimitChange.objects.order_by("-id").filter(id__lt=before_id(request))[:ROWS_MAX])
        walls = _walls(rows)
        return Response({"limits": [messages.limit_to_json(row, walls) | {"id": row.id} for row in rows]})

    @extend_schema(
        operation_id="change_limit",
        request=shapes.ChangeLimitSerializer,
        responses={200: shapes.LimitOutcomeSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Set a limit for a scope, until further notice or for some seconds; or preview it."""
        fields, order = self.read(shapes.ChangeLimitSerializer)
        name, value = messages.limit_from_json(fields)
        seconds = messages.integer(fields, "for_seconds", DURATION_SECONDS_MAX)
        scope = messages.scope_from_json(fields)
        return Response(change_limit(name=name, scope=scope, value=value, order=order, for_seconds=seconds).to_json())


class PausesView(OperatorView):
    """Pauses in force, and pausing or draining a scope."""

    @extend_schema(operation_id="list_pauses", responses={200: shapes.PauseListSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """List what is paused or draining now."""
        rows = list(pauses_in_force(read_time().now_ms).order_by("id"))
        walls = _walls(rows)
        return Response({"pauses": [messages.pause_to_json(row, walls) for row in rows]})

    @extend_schema(
        operation_id="pause", request=shapes.PauseSerializer, responses={200: shapes.PauseOutcomeSerializer, **ERRORS}
    )
    def post(self, request: Request) -> Response:
        """Pause or drain everything, a lane, a tenant or a level; or preview it."""
        fields, order = self.read(shapes.PauseSerializer)
        is_given = fields.values.get("mode") is not None
        mode = PauseMode(fields.choice("mode", [mode.value for mode in PauseMode])) if is_given else PauseMode.PAUSE
        seconds = messages.integer(fields, "for_seconds", DURATION_SECONDS_MAX)
        scope = messages.scope_from_json(fields)
        return Response(pause(scope=scope, mode=mode, order=order, for_seconds=seconds).to_json())


class ResumeView(OperatorView):
    """Ends a pause."""

    @extend_schema(
        operation_id="resume", request=shapes.ResumeSerializer, responses={200: shapes.PauseOutcomeSerializer, **ERRORS}
    )
    def post(self, request: Request) -> Response:
        """Let a scope go on; what is not paused stays as it is."""
        fields, order = self.read(shapes.ResumeSerializer)
        return Response(resume(scope=messages.scope_from_json(fields), order=order).to_json())


class ParkedView(OperatorView):
    """Parked jobs."""

    @extend_schema(
        operation_id="list_parked_jobs",
        parameters=[BEFORE, shapes.ParkedQuerySerializer],
        responses={200: shapes.ParkedListSerializer, **ERRORS},
    )
    def get(self, request: Request) -> Response:
        """List parked jobs with their blocks and the reason, the newest first."""
        given: dict[str, Any] = dict(request.query_params.items())
        given.pop("before", None)
        for name in ("shard", "level"):
            if given.get(name, "").isdecimal():
                given[name] = int(given[name])
        wanted = messages.filter_from_json(Fields("$", {"filter": given | {"all": True}}))
        jobs = parked_jobs(wanted).filter(id__lt=before_id(request)).order_by("-id")[:ROWS_MAX]
        return Response({"jobs": messages.parked_to_json(jobs)})


class JobsView(OperatorView):
    """One order about the jobs that a filter fits."""

    def read_jobs(self) -> tuple[Fields, JobFilter, Order]:
        """Return the body's fields, the filter of jobs, and the actor, reason and dry-run flag."""
        fields, order = self.read(shapes.JobOrderSerializer)
        return fields, messages.filter_from_json(fields), order


class RequeueView(JobsView):
    """Another chance for parked jobs."""

    @extend_schema(operation_id="requeue", **JOB_ORDER)
    def post(self, request: Request) -> Response:
        """Let parked jobs wait for a worker again, or preview it."""
        fields, wanted, order = self.read_jobs()
        newer, keep = messages.flag(fields, "newer_build_only"), messages.flag(fields, "keep_failures")
        return Response(requeue(wanted, order=order, newer_build_only=newer, keep_failures=keep).to_json())


class CancelView(JobsView):
    """Setting jobs aside."""

    @extend_schema(operation_id="cancel", **JOB_ORDER)
    def post(self, request: Request) -> Response:
        """Take scheduled jobs out of the schedule, with their blocks; or preview it."""
        _, wanted, order = self.read_jobs()
        return Response(cancel(wanted, order=order).to_json())


class GiveBlocksBackView(JobsView):
    """Ending parked jobs."""

    @extend_schema(operation_id="give_blocks_back", **JOB_ORDER)
    def post(self, request: Request) -> Response:
        """End parked jobs and plan their blocks anew, or preview it."""
        _, wanted, order = self.read_jobs()
        return Response(return_job_blocks(wanted, order=order).to_json())


class ResetFailuresView(JobsView):
    """Forgetting failures."""

    @extend_schema(operation_id="reset_failures", **JOB_ORDER)
    def post(self, request: Request) -> Response:
        """Forget the failures of jobs, or preview it."""
        _, wanted, order = self.read_jobs()
        return Response(reset_failures(wanted, order=order).to_json())


class UnpinView(JobsView):
    """Opening jobs to every worker."""

    @extend_schema(operation_id="unpin", **JOB_ORDER)
    def post(self, request: Request) -> Response:
        """Let any worker of any build run these jobs again, or preview it."""
        _, wanted, order = self.read_jobs()
        return Response(unpin(wanted, order=order).to_json())


class PinView(JobsView):
    """Reserving jobs for a worker."""

    @extend_schema(operation_id="pin", **JOB_ORDER)
    def post(self, request: Request) -> Response:
        """Let only one worker run these jobs, or preview it."""
        fields, wanted, order = self.read_jobs()
        worker = fields.text("worker", NAME_MAX, empty=False)
        return Response(pin(wanted, worker=worker, order=order).to_json())


class IsolationView(OperatorView):
    """Where keeping bad sources out is stopped, and the decision that ends a stop."""

    @extend_schema(operation_id="isolation", responses={200: shapes.IsolationSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        """Return the stops that wait for a decision, by lane and place."""
        stops = open_stops()
        walls = _walls(stops)
        return Response({"stops": [messages.stop_to_json(stop, walls) for stop in stops]})

    @extend_schema(
        operation_id="decide_isolation",
        request=shapes.DecideIsolationSerializer,
        responses={200: shapes.QuarantineDecisionSerializer, **ERRORS},
    )
    def post(self, request: Request) -> Response:
        """Try the sources of a place again, or quarantine them; or preview it."""
        fields, order = self.read(shapes.DecideIsolationSerializer)
        decision = IsolationStop.Decision(fields.choice("decision", IsolationStop.Decision.values))
        lane = fields.choice("lane", [lane.name for lane in lanes()])
        place = fields.text("place", PLACE_MAX, default="")
        return Response(decide_isolation(lane, place, decision, order=order).to_json())


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
