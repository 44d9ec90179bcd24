"""The addresses of the web process."""

from __future__ import annotations

from django.contrib import admin
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView


def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200 when this process reaches its database."""
    connection.ensure_connection()
    return HttpResponse("ok\n", content_type="text/plain")


urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("healthz", healthz),
    path("api/v1/", include("webadmin.schedule.urls")),
    path("api/v1/", include("webadmin.index.urls")),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
]
