"""What connect-go sent with Grafana's published Go messages: recorded once, answered here byte for byte as it came.

The recording asks for the minute from 1789999980000 on; the client read the same answers in protobuf, JSON and gzip.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from engine.formats.proto import pprof_pb2, querier_pb2
from tests.webadmin.query.viewers.conftest import CPU, EXAMPLE, OTHER_EXAMPLE, Viewer

RECORDING = json.loads((Path(__file__).parent / "recorded_connect_go.json").read_text())
CALLS = {call["name"]: call for call in RECORDING["calls"]}
START_MS = 1_789_999_980_000


@pytest.fixture
def recorded(viewer: Viewer) -> Viewer:
    """A viewer with the data that the recording was made with."""
    viewer.start_ms = START_MS
    viewer.write(EXAMPLE, at=1_000, host="a")
    viewer.write(OTHER_EXAMPLE, at=20_000, host="b")
    return viewer


def replayed(viewer: Viewer, name: str) -> Any:
    """Send a recorded call with its own headers and a credential of this test; return the answer."""
    call = CALLS[name]
    kind = call["headers"]["content-type"]
    others = {key: value for key, value in call["headers"].items() if key not in ("content-type", "accept-encoding")}
    headers = {"Authorization": f"Bearer {viewer.secret}", **others}
    body = base64.b64decode(call["body"])
    return viewer.client.post(call["path"], data=body, content_type=kind, CONTENT_TYPE=kind, headers=headers)


def test_lists(recorded: Viewer) -> None:
    types = querier_pb2.ProfileTypesResponse.FromString(replayed(recorded, "ProfileTypes").content)
    assert [one.ID for one in types.profile_types] == [CPU]
    names = querier_pb2.LabelNamesResponse.FromString(replayed(recorded, "LabelNames").content).names
    assert {"host", "service_name", "__profile_type__"} <= set(names)
    values = querier_pb2.LabelValuesResponse.FromString(replayed(recorded, "LabelValues").content).names
    assert list(values) == ["a", "b"]
    (labels,) = querier_pb2.SeriesResponse.FromString(replayed(recorded, "Series").content).labels_set
    assert [(one.name, one.value) for one in labels.labels] == [("__profile_type__", CPU), ("service_name", "web")]


def test_values_over_time(recorded: Viewer) -> None:
    found = querier_pb2.SelectSeriesResponse.FromString(replayed(recorded, "SelectSeries").content).series
    lines = {one.labels[0].value: [(point.timestamp - START_MS, point.value) for point in one.points] for one in found}
    assert lines == {"a": [(15_000, 100)], "b": [(30_000, 100)]}


def test_flame_graphs(recorded: Viewer) -> None:
    answer = querier_pb2.SelectMergeStacktracesResponse.FromString(replayed(recorded, "SelectMergeStacktraces").content)
    graph = answer.flamegraph
    assert list(graph.names) == ["total", "other", "main", "work", "render", "parse"], "cut to four nodes"
    assert list(graph.levels[3].values) == [5, 90, 90, 5, 0, 70, 70, 4]
    assert (graph.total, graph.max_self) == (200, 90)
    answer = querier_pb2.SelectMergeStacktracesResponse.FromString(
        replayed(recorded, "SelectMergeStacktraces-tree").content
    )
    assert answer.tree.startswith(bytes.fromhex("0000 01 046d61696e")), "only what main calls"
    spans = querier_pb2.SelectMergeSpanProfileResponse.FromString(replayed(recorded, "SelectMergeSpanProfile").content)
    assert spans.flamegraph.total == 0, "no profile has the span"
    diff = querier_pb2.DiffResponse.FromString(replayed(recorded, "Diff").content).flamegraph
    assert (diff.total, diff.leftTicks, diff.rightTicks, diff.max_self) == (300, 200, 100, 90)


def test_pprof(recorded: Viewer) -> None:
    profile = pprof_pb2.Profile.FromString(replayed(recorded, "SelectMergeProfile").content)
    assert sum(sample.value[0] for sample in profile.sample) == 200


def test_a_bad_selector(recorded: Viewer) -> None:
    answer = replayed(recorded, "SelectMergeStacktraces-bad")
    assert (answer.status_code, json.loads(answer.content)["code"]) == (400, "invalid_argument")
