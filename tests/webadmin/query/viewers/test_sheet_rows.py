"""The numbered known answers of the profile API sheet (section 8) about questions, over the wire.

Rows 48 to 50 are in ``test_lists``, row 35 in ``test_refusals``, row 59 in ``test_connect``; rows 53 and 54 are drawn
with steps that the wire does not offer, and are with the timeline. All requests here are handwritten.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine.formats.proto import querier_pb2
from engine.query.flame.tree import FlameTree
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


def test_row_36_a_range_needs_both_ends_in_order(viewer: Viewer) -> None:
    assert refused(viewer, start=0) == refused(viewer, end=0) == "missing time range in the query"
    assert refused(viewer, start=1000, end=500) == "query start time is after end time"


def test_row_37_the_number_of_nodes_is_bounded(viewer: Viewer) -> None:
    viewer.write({f"f{n}": 1 + n for n in range(9000)})
    names = viewer.stacks().flamegraph.names
    assert len(names) == 8192 + 2, "the root, and what is left over, beside the default"
    assert len(viewer.stacks(max_nodes=10).flamegraph.names) == 12
    assert refused(viewer, max_nodes=(1 << 20) + 1) == "max nodes limit 1048576 exceeded by 1048577"
    assert "max nodes must be" in refused(viewer, max_nodes=-1)
    request = querier_pb2.SelectMergeProfileRequest(profile_typeID=CPU, label_selector="{}", **viewer.range())
    request.max_nodes = -1
    assert viewer.post("SelectMergeProfile", request.SerializeToString()).status_code == 200, "pprof has no bound"


def test_row_38_a_type_has_five_parts_or_six(viewer: Viewer) -> None:
    viewer.write({"a": 1})
    assert viewer.stacks(profile_typeID=CPU + ":delta").flamegraph.total == 1
    for text, count in (("a:b:c:d", 4), ("a:b:c:d:e:f:g", 7), ("a", 1)):
        assert refused(viewer, profile_typeID=text).endswith(f"got({count}): {text}")


def test_row_39_the_smallest_node_shown(viewer: Viewer) -> None:
    viewer.write({"a;b;c": 2, "a;b;c1": 1, "a;b1;c": 1})
    cut = viewer.stacks(max_nodes=2).flamegraph
    assert list(cut.names) == ["total", "a", "other", "b"]
    assert levels(cut)[2:] == [[0, 3, 0, 3, 0, 1, 1, 2], [0, 3, 3, 2]]
    for nodes in (1 << 20, 0):
        assert "other" not in viewer.stacks(max_nodes=nodes).flamegraph.names


def test_row_40_a_tree_that_is_cut(viewer: Viewer) -> None:
    ones = ("a;b;c1", "a;b1;c", "a;b1;c1", "a1;b;c", "a1;b;c1", "a1;b1;c", "a1;b1;c1")
    viewer.write({"a;b;c": 2, **dict.fromkeys(ones, 1)})
    tree = viewer.stacks(format=querier_pb2.PROFILE_FORMAT_TREE, max_nodes=3).tree
    assert decoded(tree) == {"a;b;other": 3, "a;other": 2, "a1;other": 4}


def test_row_41_levels(viewer: Viewer) -> None:
    viewer.write({"a;b;e": 1, "a;c": 2, "a;c;d": 1})
    graph = viewer.stacks().flamegraph
    assert list(graph.names) == ["total", "a", "c", "d", "b", "e"]
    assert levels(graph) == [[0, 4, 0, 0], [0, 4, 0, 1], [0, 1, 0, 4, 0, 3, 2, 2], [0, 1, 1, 5, 2, 1, 1, 3]]
    assert (graph.total, graph.max_self) == (4, 2)


def test_row_42_levels_that_are_cut(viewer: Viewer) -> None:
    viewer.write({"foo;bar": 1, "foo;bar;baz": 1, "foo;qux": 2, "fred;zoo": 1, "fred;other": 1})
    graph = viewer.stacks(max_nodes=4).flamegraph
    assert list(graph.names) == ["total", "fred", "other", "foo", "qux", "bar"]
    assert levels(graph) == [
        [0, 6, 0, 0],
        [0, 4, 0, 3, 0, 2, 0, 1],
        [0, 2, 1, 5, 0, 2, 2, 4, 0, 2, 2, 2],
        [1, 1, 1, 2],
    ]


def test_rows_43_and_45_a_difference_whole_and_cut(viewer: Viewer) -> None:
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


def test_row_44_a_difference_with_nodes_of_one_side(viewer: Viewer) -> None:
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


def test_row_46_negative_values_reach_no_tree(viewer: Viewer) -> None:
    tree = FlameTree()
    tree.add_stack([b"a"], -1)
    assert (tree.total, len(tree)) == (0, 0), "so none reaches a difference, which would have to refuse it"
    viewer.write({"a": 1, "b": -1})
    assert viewer.stacks().flamegraph.total == 1


def test_row_47_units_of_memory(viewer: Viewer) -> None:
    kind = "memory:inuse_space:bytes:space:bytes"
    viewer.write({"a": 7}, kind=kind)
    times = {"from": viewer.start_ms, "until": viewer.start_ms + 60_000}
    found = viewer.get("render", query=kind + "{}", **times).json()
    assert found["flamebearer"]["numTicks"] == 7
    about = {"format": "single", "units": "bytes", "name": "inuse_space", "sampleRate": 100, "spyName": ""}
    assert found["metadata"] == about


@pytest.mark.parametrize("step", [{"step": 0.0005}, {}])
def test_row_51_a_step_is_a_millisecond_at_least(viewer: Viewer, step: dict[str, float]) -> None:
    request = querier_pb2.SelectSeriesRequest(profile_typeID=CPU, label_selector="{}", **viewer.range(), **step)
    answer = viewer.post("SelectSeries", request.SerializeToString())
    assert (said(answer)[:2], message_of(answer)) == ((400, "invalid_argument"), "step must be >= 1ms")


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
def test_row_52_times_as_people_write_them(viewer: Viewer, monkeypatch: Any, text: str, second: int) -> None:
    monkeypatch.setattr(viewing.time, "time_ns", lambda: (NOW_S * 1000 + 1) * 10**6)
    found = viewer.get("render", query=CPU + "{}", **{"from": text}).json()
    line = found["timeline"]
    assert line["startTime"] == second // line["durationDelta"] * line["durationDelta"]


@pytest.mark.parametrize(
    ("days", "step"),
    [(1 / 24, 15), (7, 300), (30, 1_800), (180, 10_800), (360, 21_600), (720, 43_200), (1_800, 86_400)],
)
def test_row_55_the_step_of_a_timeline(viewer: Viewer, settings: Any, days: float, step: int) -> None:
    settings.QUERY_LENGTH_SECONDS = 0
    end = viewer.start_ms // 1000
    found = viewer.get("render", query=CPU + "{}", **{"from": int(end - days * DAY_S), "until": end}).json()
    assert found["timeline"]["durationDelta"] == step


def test_row_56_names_that_are_no_words_stand_in_quotes(viewer: Viewer) -> None:
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


def test_row_60_statistics_are_not_offered(viewer: Viewer) -> None:
    assert said(viewer.post("GetProfileStats", b""))[:2] == (501, "unimplemented")


def test_every_row_about_questions_has_a_test() -> None:
    named: set[int] = set()
    for path in Path(__file__).parents[3].rglob("test_*.py"):
        for name in re.findall(r"def test_rows?_([0-9_and]+)_", path.read_text()):
            named |= {int(number) for number in re.findall(r"\d+", name)}
    assert ROWS - named == set()
