"""The older GET addresses: flame graphs as JSON with a timeline, differences, labels. Handwritten requests."""

from __future__ import annotations

from typing import Any

import pytest

from engine.formats.proto import querier_pb2
from tests.webadmin.query.viewers.conftest import CPU, EXAMPLE, OTHER_EXAMPLE, Viewer


def render(viewer: Viewer, query: str = CPU + "{}", **parameters: Any) -> Any:
    times = {"from": viewer.start_ms, "until": viewer.start_ms + 60_000}
    answer = viewer.get("render", **{"query": query, **times, **parameters})
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_the_whole_example_as_a_document(viewer: Viewer) -> None:
    viewer.write(EXAMPLE, at=20_000)
    found = render(viewer)
    assert found["version"] == 1
    assert found["flamebearer"] == {
        "names": ["total", "main", "work", "render", "parse", "idle", "gc"],
        "levels": [
            [0, 100, 0, 0],
            [0, 5, 5, 6, 0, 95, 0, 1],
            [5, 10, 10, 5, 0, 85, 5, 2],
            [20, 30, 30, 4, 0, 50, 50, 3],
        ],
        "numTicks": 100,
        "maxSelf": 50,
    }
    assert found["metadata"] == {
        "format": "single",
        "spyName": "",
        "sampleRate": 10**9,
        "units": "samples",
        "name": "cpu",
    }
    start = viewer.start_ms // 1000
    line = {"startTime": start, "samples": [0, 0, 100, 0], "durationDelta": 15, "watermarks": None}
    assert (found["timeline"], found["groups"], found["heatmap"]) == (line, None, None)


def test_the_type_may_stand_inside_the_selector_and_others_select(viewer: Viewer) -> None:
    viewer.write({"a": 1}, at=0, region="eu")
    viewer.write({"a": 2}, at=1, region="us")
    inside = f'{{__name__="{CPU}", region="us"}}'
    assert render(viewer, inside)["flamebearer"]["numTicks"] == 2
    assert render(viewer, f'{CPU}{{region="eu"}}')["flamebearer"]["numTicks"] == 1


def test_groups_are_lines_by_a_labels_value(viewer: Viewer) -> None:
    viewer.write({"a": 1}, at=1_000, region="eu")
    viewer.write({"a": 2}, at=16_000, region="us")
    viewer.write({"a": 4}, at=31_000)
    found = render(viewer, groupBy=["region", "host"])
    lines = {name: group["samples"] for name, group in found["groups"].items()}
    assert lines == {"eu": [0, 1, 0, 0], "us": [0, 0, 2, 0], "*": [0, 0, 0, 4]}
    assert found["timeline"]["samples"] == [0, 0, 0, 0]
    assert found["flamebearer"]["numTicks"] == 7


def test_values_over_time_are_sums_or_means(viewer: Viewer) -> None:
    viewer.write({"a": 2}, at=1_000, host="a")
    viewer.write({"a": 4}, at=2_000, host="b")
    assert render(viewer)["timeline"]["samples"] == [0, 6, 0, 0]
    assert render(viewer, aggregation="avg")["timeline"]["samples"] == [0, 3, 0, 0]
    assert render(viewer, aggregation="median")["timeline"]["samples"] == [0, 6, 0, 0]


@pytest.mark.parametrize(("parameters", "nodes"), [({"maxNodes": 3}, 5), ({"max-nodes": 3}, 5), ({"maxNodes": 3, "max-nodes": 100}, 5), ({"maxNodes": 0}, 7), ({"maxNodes": "many"}, 7)])  # fmt: skip  # noqa: E501
def test_the_number_of_nodes(viewer: Viewer, parameters: dict[str, Any], nodes: int) -> None:
    viewer.write(EXAMPLE)
    assert len(render(viewer, **parameters)["flamebearer"]["names"]) == nodes


def test_nothing_found_and_no_times_are_empty_documents(viewer: Viewer) -> None:
    for query in ({"query": CPU + "{}"}, {"query": CPU + "{}", "from": "1", "until": "2"}):
        answer = viewer.get("render", **query)
        assert answer.status_code == 200
        assert answer.json()["flamebearer"]["levels"] == [[0, 0, 0, 0]]


@pytest.mark.parametrize("query", ["", "{}", '{region="eu"}', "cpu{}", CPU + "{", '{__name__=~"a"}', CPU])
def test_queries_that_are_none(viewer: Viewer, query: str) -> None:
    answer = viewer.get("render", query=query, **{"from": "now-1h"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")


def test_a_range_of_zero_is_missing(viewer: Viewer) -> None:
    answer = viewer.get("render", query=CPU + "{}", **{"from": "0", "until": "0"})
    assert (answer.status_code, answer.json()["message"]) == (400, "missing time range in the query")


def test_the_difference_of_the_examples_as_a_document(viewer: Viewer) -> None:
    viewer.write(EXAMPLE, at=0)
    viewer.write(OTHER_EXAMPLE, at=10)
    start = viewer.start_ms
    sides = {"leftFrom": start, "leftUntil": start + 5, "rightFrom": start + 5, "rightUntil": start + 10}
    found = viewer.get("render-diff", leftQuery=CPU + "{}", rightQuery=CPU + "{}", **sides).json()
    assert found["metadata"]["format"] == "double"
    assert found["flamebearer"]["levels"][0] == [0, 100, 0, 0, 100, 0, 0]
    assert (found["leftTicks"], found["rightTicks"], found["flamebearer"]["numTicks"]) == (100, 100, 200)
    assert found["timeline"] is None
    other = viewer.get("render-diff", leftQuery=CPU + "{}", rightQuery="memory:a:b:c:d{}", **sides)
    assert (other.status_code, other.json()["code"]) == (400, "invalid_argument")


def test_labels_and_their_values(viewer: Viewer) -> None:
    viewer.write(EXAMPLE, region="eu", host="a")
    viewer.write(EXAMPLE, at=1, region="us", host="b")
    times = {"from": viewer.start_ms, "until": viewer.start_ms + 60_000}
    assert viewer.get("label-values", label="__name__", **times).json() == [CPU]
    assert viewer.get("label-values", label="region", **times).json() == ["eu", "us"]
    assert viewer.get("label-values", label="host", query=CPU + '{region="us"}', **times).json() == ["b"]
    assert viewer.get("label-values", label="host", query='{region="us"}', **times).json() == ["b"]
    assert {"host", "region", "service_name"} <= set(viewer.get("labels", **times).json())
    assert viewer.get("label-values").status_code == 400
    assert viewer.get("label-values", label="region").status_code == 200


def test_dot_is_text_and_nothing_without_data(viewer: Viewer) -> None:
    times = {"from": viewer.start_ms, "until": viewer.start_ms + 60_000}
    empty = viewer.get("render", query=CPU + "{}", format="dot", **times)
    assert (empty.status_code, empty.content, empty["Content-Type"]) == (200, b"", "text/plain; charset=utf-8")
    viewer.write(EXAMPLE)
    text = viewer.get("render", query=CPU + "{}", format="dot", maxNodes=2, **times).content.decode()
    assert text.splitlines()[2:-1] == [
        'N1 [label="main\\n0 of 95"];',
        'N2 [label="work\\n5 of 85"];',
        'N1 -> N2 [label="85"];',
    ]
    assert viewer.stacks(format=querier_pb2.PROFILE_FORMAT_DOT, max_nodes=2).dot == text
