"""REST API of chunk actions and bad files."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from webadmin.base.actions.api import post_action
from webadmin.lanes.tables.actions import OVERRIDE_CHUNKS
from webadmin.lanes.tables.api import override_messages as messages
from webadmin.lanes.tables.api import serializers as shapes
from webadmin.lanes.tables.api.table_messages import query_of, rows_of
from webadmin.lanes.tables.api.tables import ERRORS, STRETCH, TABLE_OF_URL, TableView
from webadmin.lanes.tables.models import BadFile, ChunkOverride


class OverridesView(TableView):
    """What operators decided about a table's chunks."""

    post = post_action(OVERRIDE_CHUNKS, TABLE_OF_URL)

    @extend_schema(
        operation_id="list_chunk_overrides",
        parameters=STRETCH,
        responses={200: shapes.ChunkOverrideListSerializer, **ERRORS},
    )
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """List the overrides, those that have ended too."""
        found = ChunkOverride.objects.filter(source=self.table)
        rows = rows_of(found, query_of(request.query_params.dict()), messages.OVERRIDE_STATES)
        return Response({"overrides": [messages.override_to_json(row) for row in rows]})


class BadFilesView(TableView):
    """The files of a table that could not be read."""

    @extend_schema(
        operation_id="list_bad_files",
        parameters=STRETCH[2:],
        responses={200: shapes.BadFileListSerializer, **ERRORS},
    )
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """List the quarantined files, with the reason, and those that were released."""
        query = query_of({key: str(each) for key, each in request.query_params.items() if key in ("state", "after")})
        rows = rows_of(BadFile.objects.filter(source=self.table), query, messages.BAD_FILE_STATES)
        return Response({"files": [messages.bad_file_to_json(row) for row in rows]})
