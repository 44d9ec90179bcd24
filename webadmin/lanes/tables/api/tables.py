"""REST API of tables: create and change them, register files, read their state.

The tenant is part of the URL; a credential of other tenants is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.functional import cached_property
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from engine.protocol.fields import Fields
from engine.storage import cached_store
from webadmin.base.access.errors import TenantNotAllowed
from webadmin.base.access.scopes import (
    ANY_TENANT,
    MayReadTables,
    MayWriteTables,
    credential_of,
    is_operator,
    listed_tenants,
)
from webadmin.lanes.tables.api import serializers as shapes
from webadmin.lanes.tables.api import table_messages as messages
from webadmin.lanes.tables.models import Chunk, DataSource, Segment
from webadmin.lanes.tables.services.register_files import drop_interval
from webadmin.lanes.tables.services.sources import alter_table, create_table, find_table
from webadmin.lanes.tables.services.take_files import take_files
from webadmin.lanes.tables.states import RegistrationMode
from webadmin.lanes.tables.task_models import Task
from webadmin.schedule.api.operation_messages import flag, read_order
from webadmin.schedule.api.worker_serializers import ErrorSerializer
from webadmin.schedule.services.operation import Order

ERRORS = dict.fromkeys((400, 401, 403, 404, 409, 413, 415), ErrorSerializer)
STRETCH = [
    OpenApiParameter("start_ms", int, description="only what ends after it"),
    OpenApiParameter("end_ms", int, description="only what begins before it"),
    OpenApiParameter("state", str, description="only what is in this state"),
    OpenApiParameter("after", int, description="only rows with a greater id (of the last row so far)"),
]


class TableView(APIView):
    """What is asked about tables of one tenant."""

    permission_classes: Sequence[type[BasePermission]] = [MayReadTables]

    def get_permissions(self) -> list[BasePermission]:
        """Return the permissions: write requests need another scope than read requests."""
        return [MayWriteTables()] if self.request.method == "POST" else [MayReadTables()]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check that the credential is valid for the tenant in the URL."""
        super().initial(request, *args, **kwargs)
        listed = listed_tenants(credential_of(request))
        if not listed & {ANY_TENANT, kwargs["tenant"]}:
            raise TenantNotAllowed("the credential is not for this tenant")

    @cached_property
    def table(self) -> DataSource:
        """Return the table named in the URL."""
        return find_table(self.kwargs["tenant"], self.kwargs["name"])

    @property
    def tenant_shown_to(self) -> str | None:
        """Return the tenant that the response is for; None for an operator, who may see paths of the server."""
        return None if is_operator(credential_of(self.request)) else self.kwargs["tenant"]

    def read(self, shape: type[Serializer[Any]]) -> tuple[Fields, Order]:
        """Return the fields of the body, validated against ``shape``, and the actor with the reason."""
        return read_order(self.request, shape)


class TablesView(TableView):
    """The tables of a tenant."""

    @extend_schema(operation_id="list_tables", responses={200: shapes.TableListSerializer, **ERRORS})
    def get(self, request: Request, tenant: str) -> Response:
        """List them by name."""
        rows = DataSource.objects.filter(tenant=tenant).select_related("policy").order_by("name")
        shown = [messages.table_to_json(row, self.tenant_shown_to) for row in rows[: messages.ROWS_MAX]]
        return Response({"tables": shown})

    @extend_schema(
        operation_id="create_table",
        request=shapes.CreateTableSerializer,
        responses={200: shapes.TableSerializer, **ERRORS},
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Create a table; the same one again changes nothing."""
        fields, order = self.read(shapes.CreateTableSerializer)
        is_confined = not is_operator(credential_of(request))
        new = messages.new_table(tenant, fields)
        create_table(new, order=order, is_confined=is_confined)
        if order.is_dry_run:
            return Response({"tenant": tenant, "name": new.name, "dry_run": True})
        return Response(messages.table_to_json(find_table(tenant, new.name), self.tenant_shown_to))


class OneTableView(TableView):
    """One table."""

    @extend_schema(operation_id="read_table", responses={200: shapes.TableSerializer, **ERRORS})
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """Say what is set for it and how it is."""
        return Response(messages.table_to_json(self.table, self.tenant_shown_to))

    @extend_schema(
        operation_id="alter_table",
        request=shapes.AlterTableSerializer,
        responses={200: shapes.AlteredSerializer, **ERRORS},
    )
    def post(self, request: Request, tenant: str, name: str) -> Response:
        """Change its policy, or pause it; all its chunks are analysed again."""
        fields, order = self.read(shapes.AlterTableSerializer)
        changes = dict(messages.settings_of(fields))
        if fields.values.get("is_paused") is not None:
            changes["is_paused"] = flag(fields, "is_paused")
        changed = alter_table(self.table, changes, order=order)
        return Response({"dry_run": order.is_dry_run, "changed": changed})


class SegmentsView(TableView):
    """The files of a table."""

    @extend_schema(
        operation_id="list_segments", parameters=STRETCH, responses={200: shapes.SegmentListSerializer, **ERRORS}
    )
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """List them, also those that readers do not see any more."""
        rows = messages.rows_of(
            Segment.objects.filter(source=self.table),
            messages.query_of(request.query_params.dict()),
            messages.SEGMENT_STATES,
        )
        return Response({"segments": [messages.segment_to_json(row) for row in rows]})

    @extend_schema(
        operation_id="register_segments",
        request=shapes.RegisterSerializer,
        responses={200: shapes.RegisteredSerializer, **ERRORS},
    )
    def post(self, request: Request, tenant: str, name: str) -> Response:
        """Bring up to 1,000 files in, beside what is there or in its place; each is answered by itself."""
        fields, order = self.read(shapes.RegisterSerializer)
        mode = messages.mode_of(fields)
        taken = take_files(
            self.table,
            cached_store(self.table.url),
            messages.files_of(fields),
            mode=mode,
            order=order,
            interval=messages.interval_of(fields) if mode is RegistrationMode.REPLACE else None,
        )
        return Response(messages.taken_to_json(taken, self.tenant_shown_to, is_dry_run=order.is_dry_run))


class DropIntervalView(TableView):
    """Dropping a stretch of time."""

    @extend_schema(
        operation_id="drop_interval", request=shapes.DropSerializer, responses={200: shapes.DroppedSerializer, **ERRORS}
    )
    def post(self, request: Request, tenant: str, name: str) -> Response:
        """Let readers see nothing of an interval of whole chunks; its files are deleted later."""
        fields, order = self.read(shapes.DropSerializer)
        done = drop_interval(self.table, messages.interval_of(fields), order=order)
        return Response({"dry_run": order.is_dry_run, "sequence": done.sequence, "replaced": done.hidden})


class ChunksView(TableView):
    """The chunks of a table."""

    @extend_schema(
        operation_id="list_chunks", parameters=STRETCH, responses={200: shapes.ChunkListSerializer, **ERRORS}
    )
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """List them with their states and reasons."""
        rows = messages.rows_of(
            Chunk.objects.filter(source=self.table),
            messages.query_of(request.query_params.dict()),
            messages.CHUNK_STATES,
        )
        return Response({"chunks": [messages.chunk_to_json(row, self.tenant_shown_to) for row in rows]})


class TasksView(TableView):
    """The tasks of a table."""

    @extend_schema(operation_id="list_tasks", parameters=STRETCH, responses={200: shapes.TaskListSerializer, **ERRORS})
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """List them with the states of their jobs."""
        rows = messages.rows_of(
            Task.objects.filter(source=self.table).select_related("job"),
            messages.query_of(request.query_params.dict()),
            messages.TASK_STATES,
        )
        return Response({"tasks": [messages.task_to_json(row, self.tenant_shown_to) for row in rows]})
