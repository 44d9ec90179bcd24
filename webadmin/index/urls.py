"""The addresses of the index."""

from __future__ import annotations

from django.urls import path

from webadmin.index.api import AddBlocksView, QueryBlocksView

urlpatterns = [
    path("blocks", AddBlocksView.as_view(), name="add-blocks"),
    path("blocks/query", QueryBlocksView.as_view(), name="query-blocks"),
]
