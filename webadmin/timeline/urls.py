"""The addresses of tables."""

from __future__ import annotations

from django.urls import path

from webadmin.timeline import api

TABLE = "tables/<str:tenant>/<str:name>"

urlpatterns = [
    path("tables/<str:tenant>", api.TablesView.as_view(), name="tables"),
    path(TABLE, api.OneTableView.as_view(), name="table"),
    path(f"{TABLE}/segments", api.SegmentsView.as_view(), name="table-segments"),
    path(f"{TABLE}/drop", api.DropIntervalView.as_view(), name="table-drop"),
    path(f"{TABLE}/chunks", api.ChunksView.as_view(), name="table-chunks"),
    path(f"{TABLE}/tasks", api.TasksView.as_view(), name="table-tasks"),
]
