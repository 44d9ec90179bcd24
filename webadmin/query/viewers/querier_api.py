"""``querier.v1.QuerierService``: the Connect API of Grafana, the original UI and the command-line client.

Source: profile API format sheet, sections 1 and 5.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from engine.formats.profile_block.model import Labels
from engine.formats.proto import querier_pb2
from engine.query.errors import InvalidQuestion
from engine.query.model import Question
from engine.query.select_points import Aggregation, Grid, PointSeries
from webadmin.base.connect import Call, ConnectError, Gate, View, error_answer, unary
from webadmin.query.viewers.stack_requests import diff_answer, merged_profile, stacks_answer
from webadmin.query.viewers.viewing import (
    Viewing,
    identify_reader,
    parsed_selector,
    parsed_selectors,
    viewer_errors,
)

BODY_BYTES_MAX = 1 << 20
HOUR_MS = 3_600_000
STEP_MIN_S = 0.001
ALL_NAMES = "allow-utf8-labelnames=true"
"""In ``Accept``: the client supports label names that are not identifiers."""
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _profile_types(request: Any, viewing: Viewing, call: Call) -> Message:
    start, end = request.start, request.end
    if not start and not end:
        start, end = viewing.now_ms - HOUR_MS, viewing.now_ms
    ids = viewing.profile_types(viewing.question(start, end, ()))
    return querier_pb2.ProfileTypesResponse(profile_types=[_profile_type(one) for one in ids])


def _profile_type(text: str) -> querier_pb2.ProfileType:
    name, sample_type, sample_unit, period_type, period_unit = [*text.split(":"), "", "", "", "", ""][:5]
    return querier_pb2.ProfileType(
        ID=text,
        name=name,
        sample_type=sample_type,
        sample_unit=sample_unit,
        period_type=period_type,
        period_unit=period_unit,
    )


def _label_names(request: Any, viewing: Viewing, call: Call) -> Message:
    names = viewing.label_names(_of_matchers(request, viewing))
    return querier_pb2.LabelNamesResponse(names=names if _shows_all(call) else plain_names(names))


def _label_values(request: Any, viewing: Viewing, call: Call) -> Message:
    question = _of_matchers(request, viewing)
    if not request.name:
        raise InvalidQuestion("name is required")
    return querier_pb2.LabelValuesResponse(names=viewing.label_values(question, request.name))


def _series(request: Any, viewing: Viewing, call: Call) -> Message:
    found = viewing.series(_of_matchers(request, viewing), list(request.label_names))
    if not _shows_all(call):
        found = sorted({tuple(label for label in labels if PLAIN_NAME.fullmatch(label[0])) for labels in found})
    sets = [querier_pb2.Labels(labels=_pairs(labels)) for labels in found]
    return querier_pb2.SeriesResponse(labels_set=sets)


def _select_series(request: Any, viewing: Viewing, call: Call) -> Message:
    question = viewing.question(request.start, request.end, ())
    condition = Question(start_ms=0, end_ms=0).of_type(request.profile_typeID).matchers
    matchers = (*condition, *parsed_selector(request.label_selector))
    if not math.isfinite(request.step) or request.step < STEP_MIN_S:
        raise InvalidQuestion("step must be >= 1ms")
    if request.exemplar_type == querier_pb2.EXEMPLAR_TYPE_SPAN:
        raise ConnectError("unimplemented", "exemplars of spans are not offered", reason="not_offered")
    is_average = request.aggregation == querier_pb2.TIME_SERIES_AGGREGATION_TYPE_AVERAGE
    grid = Grid(
        start_ms=question.start_ms if question else request.start,
        end_ms=question.end_ms if question else request.end,
        step_ms=int(request.step * 1_000),
        group_by=tuple(dict.fromkeys(request.group_by)),
        aggregation=Aggregation.AVERAGE if is_average else Aggregation.SUM,
        limit=request.limit,
    )
    series_question = question and Question(start_ms=grid.start_ms, end_ms=grid.end_ms, matchers=matchers)
    return querier_pb2.SelectSeriesResponse(series=[_points(one) for one in viewing.points(series_question, grid)])


def _points(series: PointSeries) -> querier_pb2.Series:
    points = [querier_pb2.Point(value=point.value, timestamp=point.time_ms) for point in series.points]
    return querier_pb2.Series(labels=_pairs(series.labels), points=points)


def _select_merge_profile(request: Any, viewing: Viewing, call: Call) -> Message:
    return merged_profile(_as_stack_request(request), viewing)


def _select_merge_span_profile(request: Any, viewing: Viewing, call: Call) -> Message:
    stack_request = _as_stack_request(request)
    if stack_request.format != querier_pb2.PROFILE_FORMAT_TREE:
        stack_request.format = querier_pb2.PROFILE_FORMAT_FLAMEGRAPH
    found = stacks_answer(stack_request, viewing)
    return querier_pb2.SelectMergeSpanProfileResponse(
        flamegraph=found.flamegraph if found.HasField("flamegraph") else None, tree=found.tree
    )


def _as_stack_request(request: Any) -> querier_pb2.SelectMergeStacktracesRequest:
    """Return an older request as the one that replaced it; their fields have the same names."""
    found = querier_pb2.SelectMergeStacktracesRequest()
    for field, value in request.ListFields():
        if isinstance(value, (str, int)):
            setattr(found, field.name, value)
        elif isinstance(value, Message):
            getattr(found, field.name).CopyFrom(value)
        else:
            getattr(found, field.name).extend(value)
    return found


def _select_merge_stacktraces(request: Any, viewing: Viewing, call: Call) -> Message:
    return stacks_answer(request, viewing)


def _diff(request: Any, viewing: Viewing, call: Call) -> Message:
    return diff_answer(request, viewing)


def _of_matchers(request: Any, viewing: Viewing) -> Question | None:
    found = viewing.range_of(request.start, request.end)
    matchers = tuple(parsed_selectors(request.matchers))
    return Question(start_ms=found.start_ms, end_ms=found.end_ms, matchers=matchers) if found is not None else None


def _shows_all(call: Call) -> bool:
    return ALL_NAMES in call.request.headers.get("Accept", "").replace(" ", "")


def plain_names(names: Iterable[str]) -> list[str]:
    """Return the names that every client supports."""
    return [name for name in names if PLAIN_NAME.fullmatch(name)]


def _pairs(labels: Labels) -> list[querier_pb2.LabelPair]:
    return [querier_pb2.LabelPair(name=name, value=value) for name, value in labels]


def _method(kind: type[Message], answer: Callable[[Any, Viewing, Call], Message]) -> View:
    def handler(call: Call) -> Message:
        viewing = call.held.enter_context(Viewing(call.sender, call.request, call.deadline))
        with viewer_errors():
            found = answer(_parsed(kind(), call), viewing, call)
        call.answer_headers.update(viewing.headers())
        return found

    return unary(handler, Gate(admit=identify_reader, body_bytes_max=lambda reader: BODY_BYTES_MAX))


def _parsed(message: Message, call: Call) -> Message:
    try:
        if call.is_json:
            if not call.body.lstrip().startswith(b"{"):
                raise ValueError("JSON needs an object")
            json_format.Parse(call.body, message, ignore_unknown_fields=True, max_recursion_depth=32)
        else:
            message.ParseFromString(call.body)
    except (DecodeError, json_format.ParseError, ValueError, RecursionError, TypeError, AttributeError) as error:
        text = f"the body is not a {message.DESCRIPTOR.full_name}: {error}"
        raise ConnectError("invalid_argument", text, reason="malformed_request") from error
    return message


METHODS: dict[str, View] = {
    "ProfileTypes": _method(querier_pb2.ProfileTypesRequest, _profile_types),
    "LabelNames": _method(querier_pb2.LabelNamesRequest, _label_names),
    "LabelValues": _method(querier_pb2.LabelValuesRequest, _label_values),
    "Series": _method(querier_pb2.SeriesRequest, _series),
    "SelectSeries": _method(querier_pb2.SelectSeriesRequest, _select_series),
    "SelectMergeStacktraces": _method(querier_pb2.SelectMergeStacktracesRequest, _select_merge_stacktraces),
    "SelectMergeProfile": _method(querier_pb2.SelectMergeProfileRequest, _select_merge_profile),
    "SelectMergeSpanProfile": _method(querier_pb2.SelectMergeSpanProfileRequest, _select_merge_span_profile),
    "Diff": _method(querier_pb2.DiffRequest, _diff),
}


@csrf_exempt
def querier(request: HttpRequest, method: str) -> HttpResponse:
    """Handle one method of the service."""
    view = METHODS.get(method)
    if view is None:
        return error_answer("unimplemented", f"querier.v1.QuerierService has no method {method[:50]} here")
    return view(request)
