"""URLs of the REST API of tables."""

from __future__ import annotations

from django.urls import path

from webadmin.lanes.tables.api import orders as orders_api
from webadmin.lanes.tables.api import tables as api

TABLE = "tables/<str:tenant>/<str:name>"

urlpatterns = [
    path("tables/<str:tenant>", api.TablesView.as_view(), name="tables"),
    path(TABLE, api.OneTableView.as_view(), name="table"),
    path(f"{TABLE}/segments", api.SegmentsView.as_view(), name="table-segments"),
    path(f"{TABLE}/drop", api.DropIntervalView.as_view(), name="table-drop"),
    path(f"{TABLE}/chunks", api.ChunksView.as_view(), name="table-chunks"),
    path(f"{TABLE}/tasks", api.TasksView.as_view(), name="table-tasks"),
    path(f"{TABLE}/orders", orders_api.OrdersView.as_view(), name="table-orders"),
    path(f"{TABLE}/orders/end", orders_api.EndOrdersView.as_view(), name="table-end-orders"),
    path(f"{TABLE}/retry", orders_api.RetryChunksView.as_view(), name="table-retry"),
    path(f"{TABLE}/bad-files", orders_api.BadFilesView.as_view(), name="table-bad-files"),
    path(f"{TABLE}/bad-files/release", orders_api.ReleaseFilesView.as_view(), name="table-release-files"),
]
