"""The real blocks of another program, queried over the wire: known totals, own values and labels; Go's pprof agrees.

The requests are handwritten.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import call_command

from engine.formats.profile_block.container.object_names import block_key
from engine.formats.proto import querier_pb2
from tests.engine.conftest import ForeignBlocks, foreign_blocks  # noqa: F401  (a fixture)
from tests.engine.query.flame.test_pprof_tree import go_top
from tests.engine.query.test_known_answers import TOP
from tests.go_pprof import needs_pprof
from tests.webadmin.query.stored import Stored
from tests.webadmin.query.viewers.conftest import CPU, Viewer
from webadmin.base.access.scopes import SCOPE_QUERY

pytestmark = pytest.mark.foreign_data

ALWAYS = {"start": 1, "end": 1 << 42}


@pytest.fixture
def foreign(
    stored: Stored,
    credential: Callable[..., str],
    foreign_blocks: ForeignBlocks,  # noqa: F811
    settings: Any,
) -> Viewer:
    """A viewer of tenant anonymous, whose blocks are these."""
    settings.QUERY_LENGTH_SECONDS = 0
    for block in foreign_blocks.all():
        meta = block.meta
        stored.store.put(block_key(meta.shard, meta.tenant, meta.compaction_level, meta.id), block.data)
        assert stored.service.add(meta, any_age=True).accepted == (meta.id,)
    return Viewer(stored, credential("anonymous", scopes=(SCOPE_QUERY,)))


def own_values(graph: querier_pb2.FlameGraph) -> Counter[str]:
    own: Counter[str] = Counter()
    for level in graph.levels:
        for node in range(0, len(level.values), 4):
            own[graph.names[level.values[node + 3]]] += level.values[node + 2]
    return own


MEMORY = "memory:{}:space:bytes"
GOROUTINES = "goroutine:goroutine:count:goroutine:count"
TOTALS = {
    "pyroscope-test/query-frontend": {
        GOROUTINES: 125,
        CPU: 180000000,
        "process_cpu:samples:count:cpu:nanoseconds": 18,
    },
    "pyroscope-test/ingester": {
        GOROUTINES: 93 + 93,
        MEMORY.format("alloc_objects:count"): 80555 + 39591,
        MEMORY.format("alloc_space:bytes"): 31899435 + 43983449,
        MEMORY.format("inuse_objects:count"): 38217 + 19771,
        MEMORY.format("inuse_space:bytes"): 15945247 + 18144991,
    },
    "pyroscope-test/alloy": {
        MEMORY.format("inuse_objects:count"): 74337,
        MEMORY.format("inuse_space:bytes"): 53795375,
    },
    "pyroscope": {
        "block:contentions:count:contentions:count": 10261,
        "block:delay:nanoseconds:contentions:count": 23303989407609,
        "goroutines:goroutine:count:goroutine:count": 3672,
        MEMORY.format("alloc_objects:count"): 3625486,
        MEMORY.format("alloc_space:bytes"): 903636145,
        MEMORY.format("inuse_objects:count"): 810057,
        MEMORY.format("inuse_space:bytes"): 413915637,
        "mutex:contentions:count:contentions:count": 1820,
        "mutex:delay:nanoseconds:contentions:count": 63474701,
        CPU: 6220000000,
        "process_cpu:samples:count:cpu:nanoseconds": 622,
    },
    "test-app": {
        CPU: 349200000000 + 8730000000,
        "process_cpu:samples:count:cpu:nanoseconds": 34920 + 873,
    },
}
"""By service and type, from sections 10.1 and 10.3 of the block sheet: all there are."""


def test_totals_by_service(foreign: Viewer) -> None:
    for name, totals in TOTALS.items():
        selector = f'{{service_name="{name}"}}'
        listing = querier_pb2.LabelValuesRequest(name="__profile_type__", matchers=[selector], **ALWAYS)
        kinds = foreign.ask("LabelValues", listing, querier_pb2.LabelValuesResponse).names
        assert list(kinds) == sorted(totals)
        for kind, total in totals.items():
            for nodes in (0, 5):
                answer = foreign.stacks(profile_typeID=kind, label_selector=selector, max_nodes=nodes, **ALWAYS)
                assert answer.flamegraph.total == total
                assert sum(own_values(answer.flamegraph).values()) == total, "what is cut is in other"
            request = querier_pb2.SelectSeriesRequest(
                profile_typeID=kind,
                label_selector=selector,
                step=86_400,
                start=1_704_067_200_000,
                end=1_767_225_600_000,
            )
            points = foreign.ask("SelectSeries", request, querier_pb2.SelectSeriesResponse).series[0].points
            assert sum(point.value for point in points) == total
        export = ("--tenant", "anonymous", "--service", name, "--from", "1", "--until", "20300101", "--json")
        for kind, total in totals.items():
            out = io.StringIO()
            call_command("query", "top", "--type", kind, *export, stdout=out)
            assert json.loads(out.getvalue())["total"] == total


def test_series_selected_by_a_label(foreign: Viewer) -> None:
    selector = '{service_name="test-app", function="slow"}'
    found = [
        foreign.stacks(profile_typeID=kind, label_selector=selector, **ALWAYS).flamegraph.total
        for kind in TOTALS["test-app"]
    ]
    assert sum(found) == 269600026960 + 6740000674


def test_spans_and_traces_have_the_values_of_their_samples(foreign: Viewer, foreign_blocks: ForeignBlocks) -> None:  # noqa: F811
    block = foreign_blocks["01JKT42699"]
    (dataset,) = [one for one in block.meta.datasets if one.format == 0]
    start, end = dataset.table_of_contents[:2]
    rows = pq.read_table(pa.BufferReader(block.data[start:end]), columns=["Samples"]).column("Samples").to_pylist()
    samples = [sample for row in rows for sample in row]
    span, trace = samples[0]["SpanID"], samples[0]["TraceID"]
    asked = {"start": dataset.min_time_ms, "end": dataset.max_time_ms, "label_selector": '{service_name="test-app"}'}
    for own, total in (
        ({"span_selector": [span.to_bytes(8, "little").hex()]}, _sum(samples, "SpanID", span)),
        ({"trace_id_selector": [trace.hex()]}, _sum(samples, "TraceID", trace)),
        ({"span_selector": ["f" * 16]}, 0),
    ):
        found = [foreign.stacks(profile_typeID=kind, **own, **asked).flamegraph.total for kind in TOTALS["test-app"]]
        assert sum(found) == total
        assert bool(total) == ("f" * 16 not in own.get("span_selector", ()))


def _sum(samples: list[dict[str, Any]], name: str, wanted: object) -> int:
    return sum(sample["Value"] for sample in samples if sample[name] == wanted)


def test_own_values_are_the_known_ones(foreign: Viewer) -> None:
    graph = foreign.stacks(label_selector='{service_name="pyroscope"}', max_nodes=1 << 20, **ALWAYS).flamegraph
    assert dict(own_values(graph).most_common(len(TOP))) == TOP


def test_labels_of_a_service(foreign: Viewer) -> None:
    request = querier_pb2.LabelValuesRequest(name="function", matchers=['{service_name="test-app"}'], **ALWAYS)
    assert list(foreign.ask("LabelValues", request, querier_pb2.LabelValuesResponse).names) == ["fast", "slow"]
    listing = querier_pb2.SeriesRequest(matchers=["{}"], label_names=["service_name", "__profile_type__"], **ALWAYS)
    sets = foreign.ask("Series", listing, querier_pb2.SeriesResponse).labels_set
    assert {label.value for one in sets for label in one.labels if label.name == "service_name"} == {
        "pyroscope",
        "pyroscope-test/alloy",
        "pyroscope-test/ingester",
        "pyroscope-test/query-frontend",
        "test-app",
    }
    assert all([label.name for label in one.labels] == ["__profile_type__", "service_name"] for one in sets)


@needs_pprof
def test_gos_own_tool_opens_the_exported_profile_and_agrees(foreign: Viewer, tmp_path: Path) -> None:
    asked = {"profile_typeID": CPU, "label_selector": '{service_name="pyroscope"}', **ALWAYS}
    request = querier_pb2.SelectMergeProfileRequest(**asked)
    answer = foreign.post("SelectMergeProfile", request.SerializeToString())
    path = tmp_path / "merged.pb"
    path.write_bytes(answer.content)
    total, functions = go_top(path, tmp_path)
    assert total == 6220000000
    assert {name: functions[name][0] for name in TOP} == TOP
