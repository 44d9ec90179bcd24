"""URLs of the API of progress."""

from __future__ import annotations

from django.urls import path

from webadmin.progress.api import ExplainView, ProgressView

urlpatterns = [
    path("explain/<path:name>", ExplainView.as_view(), name="explain"),
    path("progress", ProgressView.as_view(), name="progress"),
]
