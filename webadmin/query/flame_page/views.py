"""JSON endpoints of the page's script, with session authentication.

They are internal: names and formats change with the script. Programs use ``querier.v1.QuerierService`` with a
credential.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from engine.core.errors import LimitExceeded
from engine.query.errors import InvalidQuestion
from engine.query.flame.flamebearer import flamebearer
from engine.query.flame.folded import folded_lines
from engine.query.flame.levels import flame_graph, flame_graph_diff
from engine.query.flame.tree import FlameTree
from engine.query.merged_profile import merged_profile
from engine.query.model import PROFILE_TYPE, SERVICE_NAME
from engine.query.select_points import Grid
from webadmin.base.connect import JSON, RETRY_AFTER_S, STATUSES, ConnectError, View, answer
from webadmin.lanes.profiles.queries import tenant_services
from webadmin.query.flame_page import answers, query_parameters
from webadmin.query.flame_page.costs import merged_report
from webadmin.query.flame_page.files import opened_file
from webadmin.query.flame_page.readers import reader_of
from webadmin.query.query_views import report_json
from webadmin.query.viewers.viewing import Viewing, viewer_errors

log = logging.getLogger(__name__)

BARS = 240
"""Bars of the timeline; more cannot be distinguished on a screen."""
WHAT_NEXT = {
    "signed_out": "Sign in again; the address of this page keeps the selection.",
    "no_tenant": "Choose a tenant.",
    "no_such_tenant": "Choose one from the list, or ask an operator for the group that opens it.",
    "invalid_selector": "Mend the filter that the message is about.",
    "query_too_large": "Choose a shorter time, or filter by a label.",
    "query_busy": "Ask again in a few seconds.",
    "limit_exceeded": "Choose a shorter time, or filter by a label.",
    "query_timed_out": "Choose a shorter time, or filter by a label; or ask again when the machine is less busy.",
    "index_moved": "Ask again.",
    "store_away": "Ask again in a moment; if it stays, look at /readyz.",
    "bad_file": "Choose a file that a profiler or `go tool pprof -proto` wrote.",
    "file_too_large": "Choose a smaller file, or open it with `go tool pprof`.",
    "internal": "Try again; if it stays, tell who runs this installation.",
}
"""Instruction to the user by reason of the error."""

FlamePage = dict[str, Any]
Answer = HttpResponse | FlamePage


def _view(method: str, found: Callable[[HttpRequest], Answer]) -> View:
    """Return a view that requires a login and sends the result of ``found``, as JSON unless it is a response."""

    def view(request: HttpRequest) -> HttpResponse:
        if not admin.site.has_permission(request):
            return error_json("permission_denied", "signed_out", "you are not signed in, or not as staff", status=401)
        if request.method != method:
            return HttpResponse(status=405, headers={"Allow": method})
        try:
            with viewer_errors():
                data = found(request)
        except ConnectError as error:
            return error_json(error.code, error.reason, error.message, retry_after_s=error.retry_after_s)
        except Exception:
            log.exception("call_failed path=%s", request.path_info)
            return error_json("internal", "internal", "the server failed; its log says why")
        return data if isinstance(data, HttpResponse) else _json(request, data)

    return view


def _json(request: HttpRequest, data: FlamePage) -> HttpResponse:
    return answer(request, json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"), JSON, _NO_STORE)


_NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def error_json(
    code: str, reason: str, message: str, *, status: int = 0, retry_after_s: int = RETRY_AFTER_S
) -> HttpResponse:
    """Return an error for the page: the problem and what to do."""
    data = {"code": reason, "message": message, "next": WHAT_NEXT.get(reason, "Change the query and repeat it.")}
    headers = _NO_STORE | ({"Retry-After": str(retry_after_s)} if code == "unavailable" else {})
    return HttpResponse(json.dumps(data), status=status or STATUSES[code], content_type=JSON, headers=headers)


def _asking(found: Callable[[HttpRequest, Viewing], Answer]) -> Callable[[HttpRequest], HttpResponse]:
    """Return a view function that calls ``found`` with a Viewing.

    The Viewing holds its memory until the response exists.
    """

    def view(request: HttpRequest) -> HttpResponse:
        reader = reader_of(request.user, request.GET.get("tenant", ""))
        with Viewing(reader, request) as viewing:
            answer = found(request, viewing)
            return answer if isinstance(answer, HttpResponse) else _json(request, answer)

    return view


def _known(request: HttpRequest) -> FlamePage:
    """Return the services of a tenant with their times and profile types, from the index only."""
    tenant = reader_of(request.user, request.GET.get("tenant", "")).tenants[0]
    services = [
        {
            "name": service.name,
            "oldest_ms": service.oldest_ms,
            "newest_ms": service.newest_ms,
            "types": sorted({value for one in service.label_sets for name, value in one if name == PROFILE_TYPE}),
        }
        for service in tenant_services(tenant)
    ]
    return {"tenant": tenant, "services": services}


def _labels(request: HttpRequest, viewing: Viewing) -> FlamePage:
    """Return label names, or the values of the label that ``name`` gives."""
    side = query_parameters.side_of(request.GET, viewing, _side_prefix(request))
    name = request.GET.get("name", "")
    if name:
        found = viewing.label_values(side.question, name)
    else:
        found = [one for one in viewing.label_names(side.question) if one not in (SERVICE_NAME, PROFILE_TYPE)]
    return _with_report({"values": found}, viewing)


def _timeline(request: HttpRequest, viewing: Viewing) -> FlamePage:
    """Return the values over time; each bar is the sum of its step."""
    side = query_parameters.typed_side(request.GET, viewing, _side_prefix(request))
    step_ms = max(1, -(-(side.end_ms - side.start_ms + 1) // BARS))
    first_ms = side.start_ms - 1 + step_ms  # The points of a bar are those after the previous bar.
    grid = Grid(start_ms=first_ms, end_ms=max(first_ms, side.end_ms - 1 + step_ms), step_ms=step_ms)
    series = viewing.points(side.question, grid)
    bars = [[point.time_ms - step_ms + 1, point.value] for one in series for point in one.points]
    return _with_report({"step_ms": step_ms, "start_ms": side.start_ms, "end_ms": side.end_ms, "bars": bars}, viewing)


def _graph(request: HttpRequest, viewing: Viewing) -> FlamePage:
    """Return the flame graph of one side or the comparison of two, with the table and the search result."""
    focus, search = query_parameters.focus_of(request.GET), query_parameters.search_of(request.GET)
    trees, data = _trees(request, viewing)
    return _with_report(data | answers.graph_json(trees, focus, search), viewing)


def _sandwich(request: HttpRequest, viewing: Viewing) -> FlamePage:
    """Return the callers and callees of one function."""
    function = _function(request)
    trees, data = _trees(request, viewing)
    return _with_report(data | answers.sandwich_json(trees, function), viewing)


def _export(request: HttpRequest, viewing: Viewing) -> HttpResponse:
    """Return a file: ``pprof``, ``folded`` stacks, or ``levels`` for other viewers."""
    form, kind = request.GET.get("form", ""), query_parameters.profile_type(request.GET)
    name = f"{request.GET.get('service') or request.GET.get('tenant')}.{kind.split(':')[1]}"
    if form == "pprof" and not query_parameters.compared(request.GET):
        side = query_parameters.typed_side(request.GET, viewing)
        places = viewing.places(side.question)
        viewing.will_show(0, places)
        data = merged_profile(places, kind, side.end_ms, compress=True)
        if not data:
            raise InvalidQuestion("there is nothing to export: no profile answers")
        return _file(data, "application/octet-stream", f"{name}.pb.gz", viewing)
    trees, _ = _trees(request, viewing)
    return _text_file(trees, form, name, kind, viewing)


def _text_file(trees: list[FlameTree], form: str, name: str, kind: str, viewing: Viewing | None = None) -> HttpResponse:
    _, sample_type, sample_unit, _, _ = kind.split(":")
    if form == "folded" and len(trees) == 1:
        text = "\n".join(folded_lines(trees[0]))
        return _file(f"{text}\n".encode("utf-8", "replace"), "text/plain; charset=utf-8", f"{name}.folded", viewing)
    if form == "levels":
        graph = flame_graph(trees[0]) if len(trees) == 1 else flame_graph_diff(trees[0], trees[1])
        data = json.dumps(flamebearer(graph, sample_type, sample_unit), ensure_ascii=False).encode("utf-8", "replace")
        return _file(data, JSON, f"{name}.json", viewing)
    raise InvalidQuestion(f"{form[:20]!r} cannot be exported from here; a difference only as levels")


def _open_file(request: HttpRequest) -> Answer:
    """Return the graph of an uploaded pprof file; nothing is stored."""
    show = request.GET.get("show", "")
    try:
        tree, data = opened_file(request)
        if show == "sandwich":
            return data | answers.sandwich_json([tree], _function(request))
        if show in ("folded", "levels"):
            chosen = data["sample_types"][data["sample"]]
            return _text_file([tree], show, "opened", f"file:{chosen['type']}:{chosen['unit']}::".replace("\n", " "))
        return data | answers.graph_json(
            [tree], query_parameters.focus_of(request.GET), query_parameters.search_of(request.GET)
        )
    except LimitExceeded as error:
        raise ConnectError("invalid_argument", str(error), reason="file_too_large") from error


def _trees(request: HttpRequest, viewing: Viewing) -> tuple[list[FlameTree], FlamePage]:
    """Return the tree of each side, and the parsed parameters."""
    prefixes = (
        [query_parameters.LEFT, query_parameters.RIGHT]
        if query_parameters.compared(request.GET)
        else [_side_prefix(request)]
    )
    sides = [query_parameters.typed_side(request.GET, viewing, prefix) for prefix in prefixes]
    trees = [viewing.tree(side.question) for side in sides]
    viewing.will_show(0, *trees)  # Tables and searches use the whole tree, whatever part is drawn.
    _, sample_type, sample_unit, _, _ = query_parameters.profile_type(request.GET).split(":")
    ranges = [{"start_ms": side.start_ms, "end_ms": side.end_ms} for side in sides]
    return trees, {"ranges": ranges, "sample_type": sample_type, "unit": sample_unit}


def _side_prefix(request: HttpRequest) -> str:
    return query_parameters.RIGHT if request.GET.get("side") == "right" else query_parameters.LEFT


def _function(request: HttpRequest) -> str:
    name = request.GET.get("function", "")
    if not name:
        raise InvalidQuestion("no function is chosen")
    return name


def _with_report(data: FlamePage, viewing: Viewing) -> FlamePage:
    return data | {"report": report_json(merged_report(viewing.reports))}


def _file(data: bytes, kind: str, name: str, viewing: Viewing | None = None) -> HttpResponse:
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name)
    headers = _NO_STORE | {"Content-Disposition": f'attachment; filename="{plain}"'}
    return HttpResponse(data, content_type=kind, headers=headers | (viewing.headers() if viewing else {}))


known = _view("GET", _known)
labels = _view("GET", _asking(_labels))
timeline = _view("GET", _asking(_timeline))
graph = _view("GET", _asking(_graph))
sandwich = _view("GET", _asking(_sandwich))
export = _view("GET", _asking(_export))
open_file = _view("POST", _open_file)
