"""Merged stacks over the wire: the known answers of the profile API sheet. All requests here are handwritten."""

from __future__ import annotations

import pytest

from engine.formats.proto import pprof_pb2, querier_pb2
from tests.webadmin.query.viewers.conftest import CPU, EXAMPLE, OTHER_EXAMPLE, Viewer

EXAMPLE_TREE = (
    "0000 02 046d61696e 00 02 04776f726b 05 02 0672656e646572 32 00 057061727365 1e 00 0469646c65 0a 00 026763 05 00"
)
CUT_TREE = (
    "0000 02 056f74686572 05 00 046d61696e 00 02 04776f726b 05 02 0672656e646572 32 00 057061727365 1e 00"
    "056f74686572 0a 00"
)


def levels(graph: querier_pb2.FlameGraph | querier_pb2.FlameGraphDiff) -> list[list[int]]:
    return [list(level.values) for level in graph.levels]


def test_the_whole_example_has_its_levels(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    graph = viewer.stacks().flamegraph
    assert list(graph.names) == ["total", "main", "work", "render", "parse", "idle", "gc"]
    assert levels(graph) == [
        [0, 100, 0, 0],
        [0, 5, 5, 6, 0, 95, 0, 1],
        [5, 10, 10, 5, 0, 85, 5, 2],
        [20, 30, 30, 4, 0, 50, 50, 3],
    ]
    assert (graph.total, graph.max_self) == (100, 50)


def test_the_example_cut_to_four_and_to_three_nodes(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    graph = viewer.stacks(max_nodes=4).flamegraph
    assert list(graph.names) == ["total", "other", "main", "work", "render", "parse"]
    assert levels(graph)[1:] == [[0, 95, 0, 2, 0, 5, 5, 1], [0, 85, 5, 3, 0, 10, 10, 1], [5, 30, 30, 5, 0, 50, 50, 4]]
    graph = viewer.stacks(max_nodes=3).flamegraph
    assert list(graph.names) == ["total", "other", "main", "work", "render"]
    assert levels(graph)[3] == [5, 50, 50, 4, 0, 30, 30, 1]
    assert (graph.total, graph.max_self) == (100, 50), "totals are of the whole"


def test_tree_bytes_whole_and_cut(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    answer = viewer.stacks(format=querier_pb2.PROFILE_FORMAT_TREE)
    assert answer.tree == bytes.fromhex(EXAMPLE_TREE)
    assert viewer.stacks(format=querier_pb2.PROFILE_FORMAT_TREE, max_nodes=4).tree == bytes.fromhex(CUT_TREE)


def test_several_blocks_are_merged_before_they_are_cut(viewer: Viewer) -> None:
    for place, (stack, value) in enumerate(EXAMPLE.items()):
        viewer.write({stack: value}, at=place)
    assert viewer.stacks(format=querier_pb2.PROFILE_FORMAT_TREE, max_nodes=4).tree == bytes.fromhex(CUT_TREE)


def test_nothing_found_is_an_empty_graph(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    for fields in ({"label_selector": '{service_name="nobody"}'}, {"start": 1, "end": 2}, {"profile_typeID": "::::"}):
        graph = viewer.stacks(**fields).flamegraph
        assert (list(graph.names), levels(graph), graph.total) == (["total"], [[0, 0, 0, 0]], 0)
    assert viewer.stacks(start=1, end=2, format=querier_pb2.PROFILE_FORMAT_TREE).tree == b""


def test_both_ends_of_a_range_are_inside(viewer: Viewer) -> None:
    viewer.write({"a": 1}, at=0)
    viewer.write({"a": 2}, at=1)
    viewer.write({"a": 4}, at=2)
    begin = viewer.start_ms
    assert viewer.stacks(start=begin, end=begin + 1).flamegraph.total == 3
    assert viewer.stacks(start=begin + 1, end=begin + 2).flamegraph.total == 6
    assert viewer.stacks(start=begin + 1, end=begin + 1).flamegraph.total == 2


def test_selectors_choose_series_as_prometheus_does(viewer: Viewer) -> None:
    viewer.write({"a": 1}, at=0, region="eu-west")
    viewer.write({"a": 2}, at=1, region="us-east")
    viewer.write({"a": 4}, at=2)
    totals = {
        '{region="eu-west"}': 1,
        '{region=~"eu"}': 0,
        '{region=~"eu-.*|us-.*",}': 3,
        '{region!="eu-west"}': 6,
        '{region=""}': 4,
        '{region!~"eu-.*", service_name="web"}': 6,
        "process_cpu{region=`us-east`}": 2,
    }
    assert {text: viewer.stacks(label_selector=text).flamegraph.total for text in totals} == totals


def test_a_sixth_part_of_a_type_is_ignored(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    assert viewer.stacks(profile_typeID=CPU + ":delta").flamegraph.total == 100


def test_a_call_site_keeps_what_it_calls(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    selector = querier_pb2.StackTraceSelector(call_site=[{"name": "main"}, {"name": "work"}])
    graph = viewer.stacks(stack_trace_selector=selector).flamegraph
    assert levels(graph) == [[0, 85, 0, 0], [0, 85, 0, 1], [0, 85, 5, 2], [5, 30, 30, 4, 0, 50, 50, 3]]
    selector = querier_pb2.StackTraceSelector(call_site=[{"name": "work"}])
    assert viewer.stacks(stack_trace_selector=selector).flamegraph.total == 0


def test_the_difference_of_the_examples_whole_and_cut(viewer: Viewer) -> None:
    viewer.write(EXAMPLE, at=0)
    viewer.write(OTHER_EXAMPLE, at=10)
    middle = viewer.start_ms + 5

    def diff(**fields: int) -> querier_pb2.FlameGraphDiff:
        request = querier_pb2.DiffRequest(
            left=viewer.stack_request(end=middle, **fields), right=viewer.stack_request(start=middle)
        )
        return viewer.ask("Diff", request, querier_pb2.DiffResponse).flamegraph

    graph = diff()
    assert list(graph.names) == ["total", "main", "work", "render", "parse", "net", "idle", "gc"]
    assert levels(graph) == [
        [0, 100, 0, 0, 100, 0, 0],
        [0, 5, 5, 0, 5, 5, 7, 0, 95, 0, 0, 95, 0, 1],
        [5, 10, 10, 5, 0, 0, 6, 0, 0, 0, 0, 15, 15, 5, 0, 85, 5, 0, 80, 0, 2],
        [20, 30, 30, 20, 60, 60, 4, 0, 50, 50, 0, 20, 20, 3],
    ]
    assert (graph.total, graph.leftTicks, graph.rightTicks, graph.max_self) == (200, 100, 100, 60)
    graph = diff(max_nodes=4)
    assert list(graph.names) == ["total", "other", "main", "work", "parse"]
    assert levels(graph)[3] == [5, 30, 30, 0, 60, 60, 4, 0, 50, 50, 0, 20, 20, 1]


def test_a_difference_of_nothing_and_nothing(viewer: Viewer) -> None:
    request = querier_pb2.DiffRequest(left=viewer.stack_request(), right=viewer.stack_request())
    graph = viewer.ask("Diff", request, querier_pb2.DiffResponse).flamegraph
    assert (list(graph.names), levels(graph)) == (["total"], [[0] * 7])


def test_pprof_has_lines_and_files_and_the_same_total(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    request = querier_pb2.SelectMergeProfileRequest(profile_typeID=CPU, label_selector="{}", **viewer.range())
    profile = viewer.ask("SelectMergeProfile", request, pprof_pb2.Profile)
    assert sum(sample.value[0] for sample in profile.sample) == 100
    strings = profile.string_table
    assert [(strings[one.type], strings[one.unit]) for one in profile.sample_type] == [("cpu", "nanoseconds")]
    assert (profile.period, profile.time_nanos, profile.duration_nanos) == (10**9, request.end * 10**6, 0)
    assert {strings[function.filename] for function in profile.function} >= {"main.py", "gc.py"}
    wrapped = viewer.stacks(format=querier_pb2.PROFILE_FORMAT_PPROF)
    assert wrapped.pprof.profile == profile
    empty = querier_pb2.SelectMergeProfileRequest(profile_typeID=CPU, label_selector="{}", start=1, end=2)
    assert viewer.ask("SelectMergeProfile", empty, pprof_pb2.Profile) == pprof_pb2.Profile()


def test_no_spans_selected_is_everything(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    request = querier_pb2.SelectMergeSpanProfileRequest(profile_typeID=CPU, label_selector="{}", **viewer.range())
    answer = viewer.ask("SelectMergeSpanProfile", request, querier_pb2.SelectMergeSpanProfileResponse)
    assert answer.flamegraph.total == 100
    request.span_selector.append("00f067aa0ba902b7")
    answer = viewer.ask("SelectMergeSpanProfile", request, querier_pb2.SelectMergeSpanProfileResponse)
    assert answer.flamegraph.total == 0, "none of these profiles has a span"


@pytest.mark.parametrize("selector", [{"profile_id_selector": ["00000000-0000-0000-0000-000000000001"]}, {"trace_id_selector": ["0" * 31 + "1"]}])  # fmt: skip  # noqa: E501
def test_ids_that_no_profile_has_select_nothing(viewer: Viewer, selector: dict[str, list[str]]) -> None:
    viewer.write(EXAMPLE)
    assert viewer.stacks(**selector).flamegraph.total == 0


def test_series_that_were_thinned_out_are_in_no_tree_but_in_the_points(viewer: Viewer) -> None:
    viewer.write({"a": 1})
    viewer.write({"a": 2}, at=1, __sampled__="true")
    assert viewer.stacks().flamegraph.total == 1
    request = querier_pb2.SelectSeriesRequest(profile_typeID=CPU, label_selector="{}", step=60, **viewer.range())
    (series,) = viewer.ask("SelectSeries", request, querier_pb2.SelectSeriesResponse).series
    assert sum(point.value for point in series.points) == 3
