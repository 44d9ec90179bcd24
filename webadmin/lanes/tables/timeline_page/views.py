"""The timeline's page, and the endpoints of its script under the session of the signed-in user.

They are not an API: names and formats change with the script. Programs use the REST API with a credential.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.staticfiles import finders
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.base.database import dialect
from webadmin.lanes.tables.admin.chunk_sections import chunk_notices, chunk_sections
from webadmin.lanes.tables.models import Chunk, DataSource
from webadmin.lanes.tables.timeline_page.columns import read_columns
from webadmin.lanes.tables.timeline_page.query_parameters import (
    InvalidTimelineQuery,
    requested_chunk,
    requested_stretch,
    whole_timeline,
)
from webadmin.lanes.tables.timeline_page.readers import visible_sources
from webadmin.lanes.tables.timeline_page.task_bars import read_bars, read_overrides

SCRIPT, STYLE = "console/bundle/chunk-timeline.js", "console/bundle/chunk-timeline.css"
PLACE = 0
"""Placeholder for a chunk's start in the URL of its panel."""


@admin.site.admin_view
def timeline_page(request: HttpRequest, source_id: int) -> HttpResponse:
    """Show the page; only the script reads the query string, which holds the displayed interval."""
    source = visible_sources(request.user).filter(id=source_id).select_related("policy").first()
    if source is None:
        raise Http404
    context = {
        **admin.site.each_context(request),
        "title": f"Timeline of {source}",
        "source": source,
        "is_bundled": finders.find(SCRIPT) is not None,
        "script": SCRIPT,
        "style": STYLE,
        "source_address": show.page_address(source) if request.user.has_perm("tables.view_datasource") else "",
        "setup": {
            "data": reverse("timeline-data", args=[source.id]),
            "chunk": reverse("timeline-chunk", args=[source.id, PLACE]).removesuffix(str(PLACE)),
            "sign_in": reverse("admin:login"),
        },
    }
    return TemplateResponse(request, "tables/timeline_page.html", context)


def _answer(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Return a view for signed-in users who may see the table; other users receive an error in JSON."""

    def answer(request: HttpRequest, source_id: int, **arguments: Any) -> HttpResponse:
        if not admin.site.has_permission(request):
            return refusal("signed_out", "you are not signed in, or not as staff", "Sign in again.", status=401)
        source = visible_sources(request.user).filter(id=source_id).select_related("policy").first()
        if source is None:
            message = "there is no such table, or you may not see it"
            return refusal("unknown_table", message, "Go back to the list.", status=404)
        if request.method != "GET":
            return HttpResponse(status=405, headers={"Allow": "GET"})
        return view(request, source, **arguments)

    return answer


def refusal(code: str, message: str, following: str, *, status: int) -> HttpResponse:
    """Return an error response: what is wrong, and what the client should do."""
    return JsonResponse({"code": code, "message": message, "next": following}, status=status)


@_answer
def timeline_data(request: HttpRequest, source: DataSource) -> HttpResponse:
    """Return the content of an interval as JSON: columns of chunks, tasks, actions."""
    try:
        stretch = requested_stretch(source, request.GET)
    except InvalidTimelineQuery as error:
        return refusal("asked_wrongly", str(error), "Show everything instead.", status=400)
    data: dict[str, Any] = {
        "as_of_ms": dialect.clock_ms(),
        "segment_bytes_max": source.policy.segment_bytes_max,
        "segment_bytes_words": show.size_text(source.policy.segment_bytes_max),
        "granularity": f"{source.policy.granularity}, {source.policy.time_zone}",
        "refusal": source.refusal,
        "is_paused": source.is_paused,
    }
    whole = whole_timeline(source)
    if stretch is None or whole is None:
        return JsonResponse(data | {"whole": None})
    return JsonResponse(
        data
        | {
            "whole": [whole.start_ms, whole.end_ms],
            "stretch": [stretch.start_ms, stretch.end_ms],
            "columns": read_columns(source, stretch).to_json(),
            "tasks": read_bars(source, stretch),
            "overrides": read_overrides(source, stretch),
        }
    )


def chunk_links(request: HttpRequest, chunk: Chunk) -> list[tuple[str, str]]:
    """Return the permitted actions on a chunk with their URLs."""
    page = admin.site.get_model_admin(Chunk)
    assert isinstance(page, ActionAdmin)
    if not page.may_act(request):
        return []
    fitting = [action for action in page.operator_actions if action.fits(chunk)]
    return [(action.label, page.action_address(action, [chunk.pk])) for action in fitting]


@_answer
def timeline_chunk(request: HttpRequest, source: DataSource, start_ms: str) -> HttpResponse:
    """Return the sections of one chunk as an HTML fragment."""
    chunk = requested_chunk(source, start_ms)
    if chunk is None:
        following = "It may have gone with its data: ask again."
        return refusal("unknown_chunk", "no chunk begins there", following, status=404)
    context = {
        "chunk": chunk,
        "notices": chunk_notices(chunk),
        "sections": chunk_sections(chunk),
        "action_links": chunk_links(request, chunk),
    }
    return TemplateResponse(request, "tables/chunk_panel.html", context)
