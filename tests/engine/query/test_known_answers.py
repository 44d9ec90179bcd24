"""The real blocks of another program: totals, top functions and selections that are known, before and after a merge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from engine.formats.profile_block.merge_model import Scratch
from engine.formats.profile_block.selectors import parse_selector
from engine.lanes.profiles.merge.merge import run as run_merge
from engine.query.execution import QueryEngine
from engine.query.model import QueryBlock, Question, blocks_of
from engine.query.select_labels import label_values, profile_types
from engine.query.select_points import Grid, select_points
from engine.query.select_stacks import select_stacks
from engine.storage import ObjectStore, open_store
from tests.engine.conftest import ForeignBlocks
from tests.engine.formats.profile_block.factories import CPU, merge_spec
from tests.engine.formats.profile_block.results import result_meta
from tests.engine.query.naive import Folded

pytestmark = pytest.mark.foreign_data

ALWAYS = Question(start_ms=1, end_ms=1 << 42)
TOP = {
    "syscall.syscall": 1120000000,
    "runtime.pthread_cond_signal": 710000000,
    "runtime.kevent": 650000000,
    "runtime.pthread_cond_wait": 500000000,
    "runtime.madvise": 290000000,
    "runtime.memclrNoHeapPointers": 270000000,
    "runtime.scanobject": 160000000,
    "github.com/klauspost/compress/flate.(*fastEncL5).Encode": 140000000,
    "runtime.pthread_kill": 130000000,
    "runtime.typePointers.next": 90000000,
}


@pytest.fixture
def foreign(foreign_blocks: ForeignBlocks) -> Iterator[QueryEngine]:
    engine = QueryEngine(foreign_blocks.store)
    yield engine
    engine.close()


def blocks(foreign_blocks: ForeignBlocks, *prefixes: str) -> list[QueryBlock]:
    found = [foreign_blocks[prefix] for prefix in prefixes] if prefixes else foreign_blocks.all()
    return blocks_of((block.key, block.meta) for block in found)


def folded(engine: QueryEngine, found: list[QueryBlock], profile_type: str, selector: str = "{}") -> Folded:
    target = Folded()
    run = engine.run()
    question = Question(start_ms=1, end_ms=1 << 42, matchers=parse_selector(selector)).of_type(profile_type)
    select_stacks(run, found, question, target)
    assert not run.report().damage
    return target


def own_values(target: Folded) -> Counter[str]:
    own: Counter[str] = Counter()
    for stack, value in target.stacks.items():
        own[stack[-1]] += value
    return own


@pytest.mark.parametrize(
    ("service", "profile_type", "total"),
    [
        ("pyroscope-test/query-frontend", CPU, 180000000),
        ("pyroscope-test/ingester", "memory:alloc_space:bytes:space:bytes", 31899435 + 43983449),
        ("pyroscope-test/alloy", "memory:inuse_objects:count:space:bytes", 74337),
        ("pyroscope", "block:delay:nanoseconds:contentions:count", 23303989407609),
        ("pyroscope", CPU, 6220000000),
        ("test-app", CPU, 349200000000 + 8730000000),
    ],
)
def test_totals_by_service(
    foreign: QueryEngine, foreign_blocks: ForeignBlocks, service: str, profile_type: str, total: int
) -> None:
    found = folded(foreign, blocks(foreign_blocks), profile_type, f'{{service_name="{service}"}}')
    assert sum(found.stacks.values()) == total


@pytest.mark.parametrize(("block", "total"), [("01JKT2XEGT", 269600026960), ("01JKT42699", 6740000674)])
def test_series_selected_by_a_label(
    foreign: QueryEngine, foreign_blocks: ForeignBlocks, block: str, total: int
) -> None:
    selector = '{service_name="test-app", function="slow"}'
    found = blocks(foreign_blocks, block)
    types = profile_types(foreign.run(), found, ALWAYS)
    assert types == [CPU, "process_cpu:samples:count:cpu:nanoseconds"]
    assert sum(sum(folded(foreign, found, kind, selector).stacks.values()) for kind in types) == total
    assert label_values(foreign.run(), found, ALWAYS, "function") == ["fast", "slow"]


def test_the_points_of_a_range_add_up_to_its_stacks(foreign: QueryEngine, foreign_blocks: ForeignBlocks) -> None:
    found = blocks(foreign_blocks, "01JKT2XEGT")
    start = min(dataset.min_time_ms for dataset in found[0].datasets)
    end = max(dataset.max_time_ms for dataset in found[0].datasets)
    grid = Grid(start_ms=start, end_ms=end + 60_000, step_ms=15_000, group_by=("function",))
    series = select_points(foreign.run(), found, ALWAYS.of_type(CPU), grid)
    assert sum(point.value for each in series for point in each.points) == 349200000000
    assert {each.labels for each in series} >= {(("function", "slow"),), (("function", "fast"),)}


def test_own_values_are_the_known_ones_before_and_after_a_merge(
    foreign: QueryEngine, foreign_blocks: ForeignBlocks, store: ObjectStore, scratch: Scratch
) -> None:
    before = folded(foreign, blocks(foreign_blocks, "01JKT3DJRE"), CPU)
    assert dict(own_values(before).most_common(len(TOP))) == TOP
    source = foreign_blocks["01JKT3DJRE"]
    store.put(source.key, source.data)
    result = run_merge(merge_spec([source.source()], tenant="anonymous", shard=3, level=3), store, scratch=scratch)
    engine = QueryEngine(store)
    after = folded(engine, blocks_of([(result.blocks[0].key, result_meta(store, result))]), CPU)
    assert after.stacks == before.stacks
    engine.close()


def test_five_segments_and_what_they_are_merged_to_answer_alike(
    foreign: QueryEngine, foreign_blocks: ForeignBlocks, store: ObjectStore, scratch: Scratch
) -> None:
    segments = [block for block in foreign_blocks.all() if block.key.startswith("segments/")]
    before = blocks_of((block.key, block.meta) for block in segments)
    results = []
    for shard in sorted({block.meta.shard for block in segments}):
        own = [block for block in segments if block.meta.shard == shard]
        for block in own:
            store.put(block.key, block.data)
        result = run_merge(merge_spec([block.source() for block in own], shard=shard), store, scratch=scratch)
        results.append((result.blocks[0].key, result_meta(store, result)))
    after = blocks_of(results)
    engine = QueryEngine(store)
    types = profile_types(foreign.run(), before, ALWAYS)
    assert profile_types(engine.run(), after, ALWAYS) == types
    for kind in types:
        assert folded(engine, after, kind).stacks == folded(foreign, before, kind).stacks
    assert label_values(engine.run(), after, ALWAYS, "service_name") == [
        "pyroscope-test/alloy",
        "pyroscope-test/ingester",
        "pyroscope-test/query-frontend",
    ]
    engine.close()


def test_an_object_store_by_url_answers_too(foreign_blocks: ForeignBlocks) -> None:
    engine = QueryEngine(open_store(foreign_blocks.store.url))
    assert sum(folded(engine, blocks(foreign_blocks, "01JKT42699"), CPU).stacks.values()) == 8730000000
    engine.close()
