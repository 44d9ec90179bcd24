"""Queries for merged stacks, with results as flame graph, tree bytes, DOT or pprof.

Source: profile API format sheet, sections 5.4 to 5.10. Stacks are merged exactly and cut once.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import replace

from engine.formats.proto import pprof_pb2, querier_pb2
from engine.query.errors import InvalidQuestion
from engine.query.flame.call_site import under_call_site
from engine.query.flame.dot import FUNCTIONS, dot_graph
from engine.query.flame.levels import flame_graph, flame_graph_diff
from engine.query.flame.tree import FlameTree
from engine.query.flame.tree_bytes import encode_tree
from engine.query.flame.truncation import truncated
from engine.query.merged_profile import merged_profile as pprof_of_tree
from engine.query.model import Question
from webadmin.base.connect import ConnectError
from webadmin.query.viewers.shown_nodes import shown_nodes_of
from webadmin.query.viewers.viewing import Viewing, parsed_selector

IDS_MAX = 10_000
_SPAN = re.compile(r"[0-9a-fA-F]{16}")
_TRACE = re.compile(r"[0-9a-fA-F]{32}")

StackRequest = querier_pb2.SelectMergeStacktracesRequest


def stack_question(request: StackRequest, viewing: Viewing) -> Question | None:
    """Return the query of a request. Raises InvalidQuestion or InvalidSelector."""
    question = viewing.question(request.start, request.end, ())
    typed = Question(start_ms=0, end_ms=0).of_type(request.profile_typeID)
    found = replace(
        typed,
        matchers=(*typed.matchers, *parsed_selector(request.label_selector)),
        profile_ids=frozenset(_profile_id(text) for text in _bounded(request.profile_id_selector)),
        span_ids=frozenset(_span_id(text) for text in _bounded(request.span_selector)),
        trace_ids=frozenset(_trace_id(text) for text in _bounded(request.trace_id_selector)),
    )
    found.check()
    return question and replace(found, start_ms=question.start_ms, end_ms=question.end_ms)


def merged_tree(request: StackRequest, viewing: Viewing) -> FlameTree:
    """Return the merged tree of a request."""
    question = stack_question(request, viewing)
    _check_selector(request.stack_trace_selector)
    tree = viewing.tree(question)
    path = [one.name.encode() for one in request.stack_trace_selector.call_site]
    return under_call_site(tree, path) if path else tree


def stacks_answer(request: StackRequest, viewing: Viewing) -> querier_pb2.SelectMergeStacktracesResponse:
    """Return the result in the requested format."""
    if request.format == querier_pb2.PROFILE_FORMAT_PPROF:
        profile = merged_profile(request, viewing)
        return querier_pb2.SelectMergeStacktracesResponse(pprof=querier_pb2.PprofProfile(profile=profile))
    if request.format == querier_pb2.PROFILE_FORMAT_DOT:
        functions = shown_nodes_of(request.max_nodes, default=FUNCTIONS)
        return querier_pb2.SelectMergeStacktracesResponse(dot=dot_graph(merged_tree(request, viewing), functions))
    nodes = shown_nodes_of(request.max_nodes)
    tree = merged_tree(request, viewing)
    viewing.will_show(nodes, tree)
    if request.format == querier_pb2.PROFILE_FORMAT_TREE:
        return querier_pb2.SelectMergeStacktracesResponse(tree=encode_tree(truncated(tree, nodes)))
    graph = flame_graph(tree, nodes)
    return querier_pb2.SelectMergeStacktracesResponse(
        flamegraph=querier_pb2.FlameGraph(
            names=graph.names, levels=_levels(graph.levels), total=graph.total, max_self=graph.max_self
        )
    )


def diff_answer(request: querier_pb2.DiffRequest, viewing: Viewing) -> querier_pb2.DiffResponse:
    """Return the difference of two merged trees, cut once to the larger of the two node limits."""
    if not (request.HasField("left") and request.HasField("right")):
        raise InvalidQuestion("a difference has a left and a right side; one is missing")
    nodes = shown_nodes_of(max(request.left.max_nodes, request.right.max_nodes))
    trees = merged_tree(request.left, viewing), merged_tree(request.right, viewing)
    viewing.will_show(nodes, *trees)
    graph = flame_graph_diff(*trees, nodes)
    return querier_pb2.DiffResponse(
        flamegraph=querier_pb2.FlameGraphDiff(
            names=graph.names,
            levels=_levels(graph.levels),
            total=graph.total,
            max_self=graph.max_self,
            leftTicks=graph.left_total,
            rightTicks=graph.right_total,
        )
    )


def merged_profile(request: StackRequest, viewing: Viewing) -> pprof_pb2.Profile:
    """Return the stacks with all their symbols as one profile, empty without data.

    It is uncut unless the request has a node limit.
    """
    question = stack_question(request, viewing)
    if request.HasField("stack_trace_selector"):
        raise ConnectError("unimplemented", "stack_trace_selector is for flame graphs and trees", reason="not_offered")
    nodes = shown_nodes_of(request.max_nodes, default=-1, most=0)
    tree = viewing.places(question)
    data = pprof_of_tree(tree, request.profile_typeID, request.end, max_nodes=nodes, compress=False)
    return pprof_pb2.Profile.FromString(data)


def _levels(levels: Iterable[list[int]]) -> list[querier_pb2.Level]:
    return [querier_pb2.Level(values=values) for values in levels]


def _check_selector(selector: querier_pb2.StackTraceSelector) -> None:
    if selector.HasField("go_pgo"):
        raise ConnectError("unimplemented", "go_pgo is not offered", reason="not_offered")


def _bounded(texts: Iterable[str]) -> list[str]:
    found = list(texts)
    if len(found) > IDS_MAX:
        raise InvalidQuestion(f"{len(found)} ids in one request; {IDS_MAX} are allowed")
    return found


def _profile_id(text: str) -> bytes:
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        raise InvalidQuestion(f"a profile id is a UUID, not {text[:50]!r}") from None


def _span_id(text: str) -> int:
    if not _SPAN.fullmatch(text):
        raise InvalidQuestion(f"a span id has 16 hexadecimal digits, unlike {text[:50]!r}")
    return int.from_bytes(bytes.fromhex(text), "little")


def _trace_id(text: str) -> bytes:
    if not _TRACE.fullmatch(text):
        raise InvalidQuestion(f"a trace id has 32 hexadecimal digits, unlike {text[:50]!r}")
    return bytes.fromhex(text)
