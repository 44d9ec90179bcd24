"""REST API of tables: create and change them, register files, read their state.

The tenant is part of the URL; a credential of other tenants is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.urls import URLPattern, path
from django.utils.functional import cached_property
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webadmin.base.access.errors import TenantNotAllowed
from webadmin.base.access.scopes import (
    ANY_TENANT,
    MayReadTables,
    MayWriteTables,
    credential_of,
    is_operator,
    listed_tenants,
)
from webadmin.base.actions.action import OperatorAction
from webadmin.base.actions.api import GivenByUrl, post_action
from webadmin.base.error_answers import ErrorSerializer
from webadmin.lanes.tables.actions import ALTER_TABLE
from webadmin.lanes.tables.api import serializers as shapes
from webadmin.lanes.tables.api import table_messages as messages
from webadmin.lanes.tables.models import Chunk, DataSource, Segment
from webadmin.lanes.tables.registration_actions import CREATE_TABLE, REGISTER_FILES
from webadmin.lanes.tables.services.sources import find_table
from webadmin.lanes.tables.task_models import Task

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


SHOWN_TO: GivenByUrl = {"shown_to": lambda view: view.tenant_shown_to}
TABLE_OF_URL: GivenByUrl = {"table": lambda view: view.table}


def table_path(action: OperatorAction, address: str) -> URLPattern:
    """Return the URL of an endpoint that only runs an action on the table of the URL."""
    view: type[TableView] = type(f"{action.operation}_view", (TableView,), {"post": post_action(action, TABLE_OF_URL)})
    return path(f"tables/<str:tenant>/<str:name>/{address}", view.as_view(), name=f"table-{action.name}")


class TablesView(TableView):
    """The tables of a tenant."""

    post = post_action(CREATE_TABLE, {"tenant": lambda view: view.kwargs["tenant"], **SHOWN_TO})

    @extend_schema(operation_id="list_tables", responses={200: shapes.TableListSerializer, **ERRORS})
    def get(self, request: Request, tenant: str) -> Response:
        """List them by name."""
        rows = DataSource.objects.filter(tenant=tenant).select_related("policy").order_by("name")
        shown = [messages.table_to_json(row, self.tenant_shown_to) for row in rows[: messages.ROWS_MAX]]
        return Response({"tables": shown})


class OneTableView(TableView):
    """One table."""

    post = post_action(ALTER_TABLE, TABLE_OF_URL)

    @extend_schema(operation_id="read_table", responses={200: shapes.TableSerializer, **ERRORS})
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """Say what is set for it and how it is."""
        return Response(messages.table_to_json(self.table, self.tenant_shown_to))


class SegmentsView(TableView):
    """The files of a table."""

    post = post_action(REGISTER_FILES, {**TABLE_OF_URL, **SHOWN_TO})

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
