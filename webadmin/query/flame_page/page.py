"""The flame graph page: template, permitted tenants, and the URLs that its script requests."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.csrf import ensure_csrf_cookie

from webadmin.query.flame_page.files import FILE_BYTES_MAX
from webadmin.query.flame_page.readers import TENANTS_LISTED_MAX, readable_tenants

SCRIPT, STYLE = "console/bundle/flame-graph.js", "console/bundle/flame-graph.css"
QUESTIONS = ("known", "labels", "timeline", "graph", "sandwich", "export", "open-file")


@admin.site.admin_view
@ensure_csrf_cookie
def flame_page(request: HttpRequest) -> HttpResponse:
    """Render the page; its state is in the query string, which only the script reads."""
    tenants = list(readable_tenants(request.user).values_list("name", flat=True)[:TENANTS_LISTED_MAX])
    context = {
        **admin.site.each_context(request),
        "title": "Flame graph",
        "is_bundled": finders.find(SCRIPT) is not None,
        "script": SCRIPT,
        "style": STYLE,
        "tenants": tenants,
        "setup": {
            "tenants": tenants,
            "addresses": {name: reverse(f"flame-{name}") for name in QUESTIONS},
            "file_bytes_max": FILE_BYTES_MAX,
            "sign_in": reverse("admin:login"),
        },
    }
    return TemplateResponse(request, "query/flame_page.html", context)
