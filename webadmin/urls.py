"""The addresses of the web process."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from webadmin.placement.map_page import placement_page
from webadmin.progress.pages import progress_page, standstill_page
from webadmin.progress.views import healthz, metrics, progressz, readyz

handler500 = "webadmin.base.error_answers.answer_server_error"
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/backlog/", progress_page, name="progress-page"),
    path("admin/standstill/", standstill_page, name="standstill-page"),
    path("admin/placement-map/", placement_page, name="placement-page"),
    path("admin/flame-graph/", include("webadmin.query.flame_page.urls")),
    path("admin/timeline-page/", include("webadmin.lanes.tables.timeline_page.urls")),
    path("admin/", admin.site.urls),
    path("healthz", healthz),
    path("readyz", readyz),
    path("progressz", progressz),
    path("metrics", metrics),
    path("api/v1/", include("webadmin.accounts.urls")),
    path("api/v1/", include("webadmin.schedule.urls")),
    path("api/v1/", include("webadmin.progress.urls")),
    path("api/v1/", include("webadmin.lanes.profiles.urls")),
    path("api/v1/", include("webadmin.placement.urls")),
    path("api/v1/", include("webadmin.lanes.tables.urls")),
    path("api/v1/", include("webadmin.lanes.tsdb.urls")),
    path("api/v1/", include("webadmin.lanes.catalog.urls")),
    path("lakefs/api/v1/", include("webadmin.lanes.catalog.api.urls")),
    path("", include("webadmin.ingest.urls")),
    path("", include("webadmin.query.urls")),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
]
