"""URLs of the REST API of tables."""

from __future__ import annotations

from django.urls import path

from webadmin.lanes.tables.actions import END_CHUNK_OVERRIDES, RELEASE_FILES, RETRY_CHUNKS
from webadmin.lanes.tables.api import overrides as overrides_api
from webadmin.lanes.tables.api import tables as api
from webadmin.lanes.tables.registration_actions import DROP_INTERVAL

TABLE = "tables/<str:tenant>/<str:name>"

urlpatterns = [
    path("tables/<str:tenant>", api.TablesView.as_view(), name="tables"),
    path(TABLE, api.OneTableView.as_view(), name="table"),
    path(f"{TABLE}/segments", api.SegmentsView.as_view(), name="table-segments"),
    api.table_path(DROP_INTERVAL, "drop"),
    path(f"{TABLE}/chunks", api.ChunksView.as_view(), name="table-chunks"),
    path(f"{TABLE}/tasks", api.TasksView.as_view(), name="table-tasks"),
    path(f"{TABLE}/overrides", overrides_api.OverridesView.as_view(), name="table-overrides"),
    api.table_path(END_CHUNK_OVERRIDES, "overrides/end"),
    api.table_path(RETRY_CHUNKS, "retry"),
    path(f"{TABLE}/bad-files", overrides_api.BadFilesView.as_view(), name="table-bad-files"),
    api.table_path(RELEASE_FILES, "bad-files/release"),
]
