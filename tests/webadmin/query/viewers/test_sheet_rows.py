"""The numbered known answers of the profile API sheet (section 8) about questions, over the wire.

Rows 48 to 50 are in ``test_lists``, row 35 in ``test_refusals``, row 59 in ``test_connect``; rows 53 and 54 are drawn
with steps that the wire does not offer, and are with the timeline. All requests here are handwritten.
"""

from __future__ import annotations

from typing import Any

import pytest

from engine.formats.proto import querier_pb2
from engine.query.flame.tree import FlameTree
from tests.row_markers import marked_tests
from tests.webadmin.query.viewers.conftest import CPU, Viewer
from tests.webadmin.query.viewers.test_flame_graphs import levels
from tests.webadmin.query.viewers.test_refusals import message_of, said
from webadmin.query.viewers import viewing

ROWS = {*range(35, 57), 59, 60}
"""Those about questions; the others are about pushes."""
NOW_S = 1_577_836_800
DAY_S = 86_400


def decoded(tree: bytes) -> dict[str, int]:
    """Return the stacks of tree bytes with what ends in them: depth first, the last child first."""
    place = 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = tree[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    found: dict[str, int] = {}

    def node(above: tuple[str, ...]) -> None:
        nonlocal place
        length = number()
        name = tree[place : place + length].decode()
        place += length
        own, children = number(), number()
        path = (*above, name) if name else above
        if own:
            found[";".join(path)] = own
        for _ in range(children):
            node(path)

    node(())
    assert place == len(tree)
    return found


def refused(viewer: Viewer, **fields: Any) -> str:
    answer = viewer.post("SelectMergeStacktraces", viewer.stack_request(**fields).SerializeToString())
    assert said(answer)[:2] == (400, "invalid_argument")
    return message_of(answer)


def diff(viewer: Viewer, **fields: int) -> querier_pb2.FlameGraphDiff:
    """Compare what was written before the 6th millisecond with what was written since."""
    middle = viewer.start_ms + 5
    request = querier_pb2.DiffRequest(
        left=viewer.stack_request(end=middle, **fields), right=viewer.stack_request(start=middle + 1)
    )
    return viewer.ask("Diff", request, querier_pb2.DiffResponse).flamegraph


@pytest.mark.row("profile-api-36")
def test_a_range_needs_both_ends_in_order(viewer: Viewer) -> None:
    assert refused(viewer, start=0) == refused(viewer, end=0) == "missing time range in the query"
    assert refused(viewer, start=1000, end=500) == "query start time is after end time"


@pytest.mark.row("profile-api-37")
def test_the_number_of_nodes_is_bounded(viewer: Viewer) -> None:
    viewer.write({f"f{n}": 1 + n for n in range(9000)})
    names = viewer.stacks().flamegraph.names
    assert len(names) == 8192 + 2, "the root, and what is left over, beside the default"
    assert len(viewer.stacks(max_nodes=10).flamegraph.names) == 12
    assert refused(viewer, max_nodes=(1 << 20) + 1) == "max nodes limit 1048576 exceeded by 1048577"
    assert "max nodes must be" in refused(viewer, max_nodes=-1)
    request = querier_pb2.SelectMergeProfileRequest(profile_typeID=CPU, label_selector="{}", **viewer.range())
    request.max_nodes = -1
    assert viewer.post("SelectMergeProfile", request.SerializeToString()).status_code == 200, "pprof has no bound"


@pytest.mark.row("profile-api-38")
def test_a_profile_type_has_five_or_six_parts(viewer: Viewer) -> None:
    viewer.write({"a": 1})
    assert viewer.stacks(profile_typeID=CPU + ":delta").flamegraph.total == 1
    for text, count in (("a:b:c:d", 4), ("a:b:c:d:e:f:g", 7), ("a", 1)):
        assert refused(viewer, profile_typeID=text).endswith(f"got({count}): {text}")


@pytest.mark.row("profile-api-39")
def test_the_smallest_shown_value_follows_from_the_number_of_nodes(viewer: Viewer) -> None:
    viewer.write({"a;b;c": 2, "a;b;c1": 1, "a;b1;c": 1})
    cut = viewer.stacks(max_nodes=2).flamegraph
    assert list(cut.names) == ["total", "a", "other", "b"]
    assert levels(cut)[2:] == [[0, 3, 0, 3, 0, 1, 1, 2], [0, 3, 3, 2]]
    for nodes in (1 << 20, 0):
        assert "other" not in viewer.stacks(max_nodes=nodes).flamegraph.names


@pytest.mark.row("profile-api-40")
def test_a_cut_tree_has_other_nodes(viewer: Viewer) -> None:
    ones = ("a;b;c1", "a;b1;c", "a;b1;c1", "a1;b;c", "a1;b;c1", "a1;b1;c", "a1;b1;c1")
    viewer.write({"a;b;c": 2, **dict.fromkeys(ones, 1)})
    tree = viewer.stacks(format=querier_pb2.PROFILE_FORMAT_TREE, max_nodes=3).tree
    assert decoded(tree) == {"a;b;other": 3, "a;other": 2, "a1;other": 4}


@pytest.mark.row("profile-api-41")
def test_a_whole_flame_graph_has_the_levels_of_the_reference(viewer: Viewer) -> None:
    viewer.write({"a;b;e": 1, "a;c": 2, "a;c;d": 1})
    graph = viewer.stacks().flamegraph
    assert list(graph.names) == ["total", "a", "c", "d", "b", "e"]
    assert levels(graph) == [[0, 4, 0, 0], [0, 4, 0, 1], [0, 1, 0, 4, 0, 3, 2, 2], [0, 1, 1, 5, 2, 1, 1, 3]]
    assert (graph.total, graph.max_self) == (4, 2)


@pytest.mark.row("profile-api-42")
def test_a_cut_flame_graph_has_the_levels_of_the_reference(viewer: Viewer) -> None:
    viewer.write({"foo;bar": 1, "foo;bar;baz": 1, "foo;qux": 2, "fred;zoo": 1, "fred;other": 1})
    graph = viewer.stacks(max_nodes=4).flamegraph
    assert list(graph.names) == ["total", "fred", "other", "foo", "qux", "bar"]
    assert levels(graph) == [
        [0, 6, 0, 0],
        [0, 4, 0, 3, 0, 2, 0, 1],
        [0, 2, 1, 5, 0, 2, 2, 4, 0, 2, 2, 2],
        [1, 1, 1, 2],
    ]


@pytest.mark.row("profile-api-43", "profile-api-45")
def test_a_whole_and_a_cut_difference_are_those_of_the_reference(viewer: Viewer) -> None:
    viewer.write({"a;b": 1, "a;c": 2}, at=0)
    viewer.write({"a;b": 4, "a;c": 8}, at=10)
    graph = diff(viewer)
    assert list(graph.names) == ["total", "a", "c", "b"]
    assert levels(graph) == [
        [0, 3, 0, 0, 12, 0, 0],
        [0, 3, 0, 0, 12, 0, 1],
        [0, 1, 1, 0, 4, 4, 3, 0, 2, 2, 0, 8, 8, 2],
    ]
    assert (graph.total, graph.max_self) == (15, 8)
    graph = diff(viewer, max_nodes=2)
    assert list(graph.names) == ["total", "a", "other"]
    assert levels(graph)[2] == [0, 3, 3, 0, 12, 12, 2]
    assert (graph.total, graph.max_self) == (15, 12)


@pytest.mark.row("profile-api-44")
def test_a_difference_has_nodes_of_one_side(viewer: Viewer) -> None:
    viewer.write({"a;b": 1, "a;c": 2, "a;e": 3}, at=0)
    viewer.write({"a;b": 4, "a;d": 8, "a;e": 12}, at=10)
    graph = diff(viewer)
    assert list(graph.names) == ["total", "a", "e", "d", "c", "b"]
    assert levels(graph)[2] == [
        *(0, 1, 1, 0, 4, 4, 5),
        *(0, 2, 2, 0, 0, 0, 4),
        *(0, 0, 0, 0, 8, 8, 3),
        *(0, 3, 3, 0, 12, 12, 2),
    ]
    assert (graph.total, graph.max_self) == (30, 12)


@pytest.mark.row("profile-api-46")
def test_negative_values_are_in_no_tree(viewer: Viewer) -> None:
    tree = FlameTree()
    tree.add_stack([b"a"], -1)
    assert (tree.total, len(tree)) == (0, 0), "so none reaches a difference, which would have to refuse it"
    viewer.write({"a": 1, "b": -1})
    assert viewer.stacks().flamegraph.total == 1


@pytest.mark.row("profile-api-47")
def test_memory_profiles_have_units_of_bytes(viewer: Viewer) -> None:
    kind = "memory:inuse_space:bytes:space:bytes"
    viewer.write({"a": 7}, kind=kind)
    times = {"from": viewer.start_ms, "until": viewer.start_ms + 60_000}
    found = viewer.get("render", query=kind + "{}", **times).json()
    assert found["flamebearer"]["numTicks"] == 7
    about = {"format": "single", "units": "bytes", "name": "inuse_space", "sampleRate": 100, "spyName": ""}
    assert found["metadata"] == about


@pytest.mark.row("profile-api-51")
@pytest.mark.parametrize("step", [{"step": 0.0005}, {}])
def test_a_step_below_a_millisecond_is_rejected(viewer: Viewer, step: dict[str, float]) -> None:
    request = querier_pb2.SelectSeriesRequest(profile_typeID=CPU, label_selector="{}", **viewer.range(), **step)
    answer = viewer.post("SelectSeries", request.SerializeToString())
    assert (said(answer)[:2], message_of(answer)) == ((400, "invalid_argument"), "step must be >= 1ms")


@pytest.mark.row("profile-api-52")
@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("now-1min", NOW_S - 60),
        ("now-1mon", NOW_S - 30 * DAY_S),
        ("now-1M", NOW_S - 30 * DAY_S),
        ("now-1", NOW_S),
        ("20200101", NOW_S),
        ("1577836800001", NOW_S),
        ("1577836800001000", NOW_S),
        ("", NOW_S),
    ],
)
def test_times_of_queries_are_parsed_in_all_formats(viewer: Viewer, monkeypatch: Any, text: str, second: int) -> None:
    monkeypatch.setattr(viewing.time, "time_ns", lambda: (NOW_S * 1000 + 1) * 10**6)
    found = viewer.get("render", query=CPU + "{}", **{"from": text}).json()
    line = found["timeline"]
    assert line["startTime"] == second // line["durationDelta"] * line["durationDelta"]


@pytest.mark.row("profile-api-55")
@pytest.mark.parametrize(
    ("days", "step"),
    [(1 / 24, 15), (7, 300), (30, 1_800), (180, 10_800), (360, 21_600), (720, 43_200), (1_800, 86_400)],
)
def test_the_step_of_a_timeline_follows_the_length_of_its_range(
    viewer: Viewer, settings: Any, days: float, step: int
) -> None:
    settings.QUERY_LENGTH_SECONDS = 0
    end = viewer.start_ms // 1000
    found = viewer.get("render", query=CPU + "{}", **{"from": int(end - days * DAY_S), "until": end}).json()
    assert found["timeline"]["durationDelta"] == step


@pytest.mark.row("profile-api-56")
def test_label_names_that_are_no_identifiers_are_quoted(viewer: Viewer) -> None:
    odd = ("service.name", "app-version", "世界", "123label")
    plain = ("foo123", "__internal__")
    viewer.write({"a": 1}, **dict.fromkeys((*odd, *plain), "x"))
    viewer.write({"a": 2}, at=1)
    for name in odd:
        assert viewer.stacks(label_selector=f'{{"{name}"="x"}}').flamegraph.total == 1
    for name in plain:
        assert viewer.stacks(label_selector=f'{{{name}="x"}}').flamegraph.total == 1
        assert viewer.stacks(label_selector=f'{{"{name}"="x"}}').flamegraph.total == 1
    for name in ("app-version", "世界", "123label"):
        refused(viewer, label_selector=f'{{{name}="x"}}')


@pytest.mark.row("profile-api-60")
def test_statistics_are_not_offered(viewer: Viewer) -> None:
    assert said(viewer.post("GetProfileStats", b""))[:2] == (501, "unimplemented")


def test_every_row_about_questions_has_a_test() -> None:
    marked = {row for test in marked_tests() for row in test.rows}
    assert {f"profile-api-{number}" for number in ROWS} - marked == set()
