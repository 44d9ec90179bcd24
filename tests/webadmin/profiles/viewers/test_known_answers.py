"""The real blocks of another program, asked over the wire: known totals, own values and labels; Go's own pprof agrees.

The requests are handwritten.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.profiles.object_names import block_key
from engine.profiles.proto import querier_pb2
from tests.engine.profiles.conftest import ForeignBlocks, foreign_blocks  # noqa: F401  (a fixture)
from tests.engine.profiles.flame.test_pprof_tree import go_top
from tests.engine.profiles.query.test_known_answers import TOP
from tests.webadmin.profiles.viewers.conftest import CPU, Viewer
from tests.webadmin.query.stored import Stored
from webadmin.profiles.senders import SCOPE_QUERY

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


TOTALS = [
    ("pyroscope-test/query-frontend", CPU, 180000000),
    ("pyroscope-test/ingester", "memory:alloc_space:bytes:space:bytes", 31899435 + 43983449),
    ("pyroscope-test/alloy", "memory:inuse_objects:count:space:bytes", 74337),
    ("pyroscope", "block:delay:nanoseconds:contentions:count", 23303989407609),
    ("pyroscope", CPU, 6220000000),
    ("test-app", CPU, 349200000000 + 8730000000),
]


def test_totals_by_service(foreign: Viewer) -> None:
    for name, profile_type, total in TOTALS:
        selector = f'{{service_name="{name}"}}'
        for nodes in (0, 5):
            answer = foreign.stacks(profile_typeID=profile_type, label_selector=selector, max_nodes=nodes, **ALWAYS)
            assert answer.flamegraph.total == total
            assert sum(own_values(answer.flamegraph).values()) == total, "what is cut is in other"


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


@pytest.mark.skipif(
    not (shutil.which("pprof") or shutil.which("go")), reason="no pprof of Go: apt-get install golang-go"
)
def test_gos_own_tool_opens_the_exported_profile_and_agrees(foreign: Viewer, tmp_path: Path) -> None:
    asked = {"profile_typeID": CPU, "label_selector": '{service_name="pyroscope"}', **ALWAYS}
    request = querier_pb2.SelectMergeProfileRequest(**asked)
    answer = foreign.post("SelectMergeProfile", request.SerializeToString())
    path = tmp_path / "merged.pb"
    path.write_bytes(answer.content)
    total, functions = go_top(path, tmp_path)
    assert total == 6220000000
    assert {name: functions[name][0] for name in TOP} == TOP
