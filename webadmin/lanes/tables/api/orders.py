"""REST API of chunk actions and bad files."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from engine.storage import cached_store
from webadmin.lanes.tables.api import order_messages as messages
from webadmin.lanes.tables.api import serializers as shapes
from webadmin.lanes.tables.api.table_messages import interval_of, query_of, rows_of
from webadmin.lanes.tables.api.tables import ERRORS, STRETCH, TableView
from webadmin.lanes.tables.models import BadFile, ChunkOrder
from webadmin.lanes.tables.services.orders import end_orders, order_chunks, release_files, retry_chunks
from webadmin.lanes.tables.states import ChunkOrderKind


class OrdersView(TableView):
    """What was ordered of a table's chunks."""

    @extend_schema(
        operation_id="list_chunk_orders",
        parameters=STRETCH,
        responses={200: shapes.ChunkOrderListSerializer, **ERRORS},
    )
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """List the orders, those that have ended too."""
        found = ChunkOrder.objects.filter(source=self.table)
        rows = rows_of(found, query_of(request.query_params.dict()), messages.ORDER_STATES)
        return Response({"orders": [messages.order_to_json(row) for row in rows]})

    @extend_schema(
        operation_id="order_chunks",
        request=shapes.OrderChunksSerializer,
        responses={200: shapes.OrderedChunksSerializer, **ERRORS},
    )
    def post(self, request: Request, tenant: str, name: str) -> Response:
        """Never compact the chunks that an interval touches, or compact them now."""
        fields, order = self.read(shapes.OrderChunksSerializer)
        told = order_chunks(self.table, interval_of(fields), messages.kind_of(fields), order=order)
        return Response({"dry_run": order.is_dry_run} | told.to_json())


class EndOrdersView(TableView):
    """Taking orders back."""

    @extend_schema(
        operation_id="end_chunk_orders",
        request=shapes.EndOrdersSerializer,
        responses={200: shapes.ChangedCountSerializer, **ERRORS},
    )
    def post(self, request: Request, tenant: str, name: str) -> Response:
        """Take back what was ordered of chunks that an interval touches: of one kind, or of both."""
        fields, order = self.read(shapes.EndOrdersSerializer)
        kinds = [messages.kind_of(fields)] if "kind" in fields.values else list(ChunkOrderKind)
        interval = interval_of(fields)
        count = sum(end_orders(self.table, interval, kind, order=order) for kind in kinds)
        return Response({"dry_run": order.is_dry_run, "changed": count})


class RetryChunksView(TableView):
    """Chunks that were set aside after failures."""

    @extend_schema(
        operation_id="retry_chunks",
        request=shapes.DropSerializer,
        responses={200: shapes.ChangedCountSerializer, **ERRORS},
    )
    def post(self, request: Request, tenant: str, name: str) -> Response:
        """Let quarantined chunks of an interval be tried again; their failures are forgotten."""
        fields, order = self.read(shapes.DropSerializer)
        count = retry_chunks(self.table, interval_of(fields), order=order)
        return Response({"dry_run": order.is_dry_run, "changed": count})


class BadFilesView(TableView):
    """The files of a table that could not be read."""

    @extend_schema(
        operation_id="list_bad_files",
        parameters=STRETCH[2:],
        responses={200: shapes.BadFileListSerializer, **ERRORS},
    )
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """List the files that are kept out, with the reason, and those that were released."""
        query = query_of({key: str(each) for key, each in request.query_params.items() if key in ("state", "after")})
        rows = rows_of(BadFile.objects.filter(source=self.table), query, messages.BAD_FILE_STATES)
        return Response({"files": [messages.bad_file_to_json(row) for row in rows]})


class ReleaseFilesView(TableView):
    """Letting files in that were repaired."""

    @extend_schema(
        operation_id="release_files",
        request=shapes.ReleaseFilesSerializer,
        responses={200: shapes.ReleasedFilesSerializer, **ERRORS},
    )
    def post(self, request: Request, tenant: str, name: str) -> Response:
        """Let files be seen again that were kept out; one that never was in the table is to be registered anew."""
        fields, order = self.read(shapes.ReleaseFilesSerializer)
        released = release_files(self.table, cached_store(self.table.url), messages.paths_of(fields), order=order)
        return Response({"dry_run": order.is_dry_run, "released": released})
