"""Older GET endpoints for viewers: flame graphs with timeline, differences, labels.

Source: profile API format sheet, section 6.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from engine.formats.profile_block.selectors import METRIC_NAME, Matcher, MatchOperator
from engine.query.errors import InvalidQuestion
from engine.query.flame.dot import FUNCTIONS, dot_graph
from engine.query.flame.flamebearer import flamebearer
from engine.query.flame.levels import flame_graph, flame_graph_diff
from engine.query.model import Question, type_id
from engine.query.select_points import Aggregation, Grid, PointSeries
from engine.query.timeline import Timeline, step_of, timeline
from webadmin.base.connect import JSON, ConnectError, View, answer, error_answer, refusal
from webadmin.base.query_times import parse_time
from webadmin.query.viewers.querier_api import HOUR_MS, plain_names
from webadmin.query.viewers.shown_nodes import shown_nodes_of
from webadmin.query.viewers.viewing import Viewing, identify_reader, parsed_selector, viewer_errors

log = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"
NO_LABEL = "*"
"""Name of the group of series without the label."""
_WHOLE_NUMBER = re.compile(r"-?\d{1,18}")


@dataclass(frozen=True, slots=True)
class _Side:
    """One ``<type>{selector}`` with its range, which is kept even if it is outside the query window."""

    profile_type: str
    start_ms: int
    end_ms: int
    question: Question | None


def _render(request: HttpRequest, viewing: Viewing) -> Any:
    parameters = request.GET
    side = _side(viewing, parameters.get("query", ""), parameters.get("from", ""), parameters.get("until", ""))
    wanted = parameters.get("maxNodes") or parameters.get("max-nodes") or ""
    if parameters.get("format") == "dot":
        functions = shown_nodes_of(_number(wanted), default=FUNCTIONS)
        return dot_graph(viewing.tree(side.question), functions)
    nodes = shown_nodes_of(_number(wanted))
    group_by = tuple(parameters.getlist("groupBy")[:1])
    step_s = step_of(side.start_ms, side.end_ms)
    grid = Grid(
        start_ms=side.start_ms,
        end_ms=side.end_ms,
        step_ms=step_s * 1_000,
        group_by=group_by,
        aggregation=Aggregation.AVERAGE if parameters.get("aggregation") == "avg" else Aggregation.SUM,
    )
    tree = viewing.tree(side.question)
    viewing.will_show(nodes, tree)
    graph = flame_graph(tree, nodes)
    series = viewing.points(side.question, grid)
    lines = [timeline(one.points, side.start_ms, side.end_ms, step_s) for one in series]
    return flamebearer(
        graph,
        *_sample_type(side),
        # Several series have no single timeline; clients read the groups.
        timeline=_json(lines[0] if len(lines) == 1 else timeline((), side.start_ms, side.end_ms, step_s)),
        groups={_value(one): _json(line) for one, line in zip(series, lines, strict=True)} if group_by else None,
    )


def _render_diff(request: HttpRequest, viewing: Viewing) -> Any:
    parameters = request.GET
    left, right = (
        _side(
            viewing,
            parameters.get(f"{side}Query", ""),
            parameters.get(f"{side}From", ""),
            parameters.get(f"{side}Until", ""),
        )
        for side in ("left", "right")
    )
    if left.profile_type != right.profile_type:
        raise InvalidQuestion(f"the profile types differ: {left.profile_type} and {right.profile_type}")
    nodes = shown_nodes_of(_number(parameters.get("maxNodes") or parameters.get("max-nodes") or ""))
    trees = viewing.tree(left.question), viewing.tree(right.question)
    viewing.will_show(nodes, *trees)
    graph = flame_graph_diff(*trees, nodes)
    return flamebearer(graph, *_sample_type(left))


def _label_values(request: HttpRequest, viewing: Viewing) -> Any:
    name = request.GET.get("label", "")
    if not name:
        raise InvalidQuestion("label is required")
    question = _of_labels(request, viewing)
    return viewing.profile_types(question) if name == METRIC_NAME else viewing.label_values(question, name)


def _labels(request: HttpRequest, viewing: Viewing) -> Any:
    return plain_names(viewing.label_names(_of_labels(request, viewing)))


def _of_labels(request: HttpRequest, viewing: Viewing) -> Question | None:
    """Return the query of ``query``, ``from`` and ``until``; the defaults are all series and the last hour."""
    parameters = request.GET
    now_s = viewing.now_ms / 1_000
    start_ms = _ms(parameters["from"], now_s) if "from" in parameters else viewing.now_ms - HOUR_MS
    question = viewing.question(start_ms, _ms(parameters.get("until", ""), now_s), ())
    profile_type, matchers = _parsed_query(parameters.get("query") or "{}")
    if profile_type:
        matchers = Question(start_ms=0, end_ms=0, matchers=matchers).of_type(profile_type).matchers
    return question and replace(question, matchers=matchers)


def _side(viewing: Viewing, query: str, start: str, end: str) -> _Side:
    now_s = viewing.now_ms / 1_000
    start_ms, end_ms = _ms(start, now_s), _ms(end, now_s)
    found = viewing.question(start_ms, end_ms, ())
    profile_type, matchers = _parsed_query(query)
    if not profile_type:
        raise InvalidQuestion("query needs a profile type: <profile type id>{selector}")
    if found is not None:
        start_ms, end_ms = found.start_ms, found.end_ms
        found = replace(found, matchers=matchers).of_type(profile_type)
    return _Side(type_id(profile_type), start_ms, end_ms, found)


def _parsed_query(query: str) -> tuple[str, tuple[Matcher, ...]]:
    """Return the profile type in the place of a metric name ("" without one), and the other matchers."""
    matchers = parsed_selector(query)
    types = [one for one in matchers if one.name == METRIC_NAME and one.operator is MatchOperator.EQUAL]
    if len(types) > 1:
        raise InvalidQuestion("query names several profile types")
    return (types[0].value if types else ""), tuple(one for one in matchers if one not in types)


def _ms(text: str, now_s: float) -> int:
    return int(parse_time(text, now_s) * 1_000)


def _number(text: str) -> int:
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else 0


def _sample_type(side: _Side) -> tuple[str, str]:
    _, sample_type, sample_unit, _, _ = side.profile_type.split(":")
    return sample_type, sample_unit


def _value(series: PointSeries) -> str:
    return series.labels[0][1] if series.labels else NO_LABEL


def _json(line: Timeline) -> dict[str, Any]:
    return {"startTime": line.start_s, "samples": line.samples, "durationDelta": line.step_s, "watermarks": None}


def _view(found: Callable[[HttpRequest, Viewing], Any]) -> View:
    """Return the view of one endpoint; the result of ``found`` is sent as JSON, a string unchanged."""

    @csrf_exempt
    def view(request: HttpRequest) -> HttpResponse:
        if request.method != "GET":
            return HttpResponse(status=405, headers={"Allow": "GET"})
        try:
            with Viewing(identify_reader(request), request) as viewing:
                with viewer_errors():
                    shown = found(request, viewing)
                body, kind = (shown, TEXT) if isinstance(shown, str) else (json.dumps(shown, ensure_ascii=False), JSON)
                return answer(request, body.encode("utf-8", "replace"), kind, viewing.headers())
        except ConnectError as error:
            return refusal(error)
        except Exception:
            log.exception("call_failed path=%s", request.path_info)
            return error_answer("internal", "the server failed; its log says why")

    return view


render = _view(_render)
render_diff = _view(_render_diff)
label_values = _view(_label_values)
labels = _view(_labels)
