"""The smallest query: right sums, each row once, nothing hidden shown, only needed objects opened, damage named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject
from engine.formats.profile_block.container.container import BlockReader
from engine.formats.profile_block.model import BlockMeta
from engine.formats.profile_block.series.series_index import decode_series_index
from engine.formats.profile_block.table.profile_table import ProfileTableReader
from engine.lanes.profiles.jobs import DeleteMask
from engine.query.dataset_index import visible_series
from engine.query.top_functions import FunctionValue, TopFunctions, top_functions
from engine.storage import ObjectStore
from tests.engine.conftest import ForeignBlocks
from tests.engine.formats.profile_block.factories import (
    CPU,
    HEAP,
    TIME_MS,
    Dataset,
    ProfileRow,
    make_sections,
    row,
    series_labels,
    write_block,
)
from tests.engine.lanes.profiles.test_masks import is_hidden, mask, masks, rows

IDS = [f"01JKT3DJRETWN25NKEFZNEP1V{number}" for number in range(4)]
Blocks = list[tuple[str, BlockMeta]]


@pytest.fixture
def blocks(store: ObjectStore) -> Blocks:
    api = Dataset(
        "acme",
        "api",
        (
            row(("leaf", "middle", "main"), id=1, value=3),
            row(("leaf", "leaf", "main"), id=2, value=4),
            row(("middle", "main"), id=3, value=5),
            row(("heap",), id=4, value=1000, labels=series_labels(HEAP)),
        ),
    )
    web = Dataset("acme", "web", (row(("web",), id=5),))
    other = Dataset("beta", "api", (row(("secret",), id=6),))
    sources = [write_block(store, [api, other], id=IDS[0]), write_block(store, [web], id=IDS[1])]
    return [(source.key, BlockReader.open(store, source.key).meta) for source in sources]


def ask(store: ObjectStore, blocks: Blocks, *, profile_type: str = CPU, limit: int = 10) -> TopFunctions:
    return top_functions(store, blocks, "acme", "api", profile_type, limit)


def test_own_and_total_values_add_up(store: ObjectStore, blocks: Blocks) -> None:
    answer = ask(store, blocks)
    assert answer.functions == (
        FunctionValue("leaf", 7, 7),
        FunctionValue("middle", 5, 8),
        FunctionValue("main", 0, 12),
    )
    assert answer.total_value == 12


def test_only_the_largest_are_returned(store: ObjectStore, blocks: Blocks) -> None:
    assert [entry.function for entry in ask(store, blocks, limit=1).functions] == ["leaf"]


def test_other_types_services_and_tenants_do_not_mix(store: ObjectStore, blocks: Blocks) -> None:
    assert ask(store, blocks, profile_type=HEAP).functions == (FunctionValue("heap", 1000, 1000),)
    assert ask(store, blocks, profile_type="no:such:type:at:all").functions == ()


def test_only_objects_with_the_service_are_opened(store: ObjectStore, blocks: Blocks) -> None:
    before = store.usage.requests().get("get_range", 0)
    statistics = ask(store, blocks).statistics
    assert (statistics.objects_opened, statistics.requests, statistics.rows_read) == (1, 1, 3)
    assert statistics.bytes_read == blocks[0][1].datasets[0].size
    assert store.usage.requests()["get_range"] - before == 1


def test_a_row_in_two_blocks_counts_once(store: ObjectStore, blocks: Blocks) -> None:
    copy = "copy/block.bin"
    store.put(copy, store.get(blocks[0][0]))
    answer = ask(store, [*blocks, (copy, blocks[0][1])])
    assert answer.total_value == 12
    assert answer.statistics.objects_opened == 2


def test_datasets_without_label_sets_are_opened_to_see(store: ObjectStore, blocks: Blocks) -> None:
    key, meta = blocks[0]
    unlabelled = replace(meta, datasets=tuple(replace(dataset, labels=()) for dataset in meta.datasets))
    assert ask(store, [(key, unlabelled)]).total_value == 12


def test_a_damaged_object_is_named(store: ObjectStore, blocks: Blocks) -> None:
    key, meta = blocks[0]
    data = store.get(key)
    end = meta.datasets[0].size - 1
    store.put(key, data[:end] + b"?" + data[end + 1 :])
    with pytest.raises(BadObject) as caught:
        ask(store, blocks)
    assert (caught.value.object_name, caught.value.section) == (key, "symbols")


def wrote(store: ObjectStore, *datasets: Dataset, id: str = IDS[0]) -> tuple[str, BlockMeta]:
    source = write_block(store, datasets, id=id)
    return source.key, BlockReader.open(store, source.key).meta


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(
    sources=st.lists(st.lists(rows(), min_size=1, max_size=8), min_size=1, max_size=3),
    wanted=st.lists(masks(), max_size=3, unique_by=lambda each: each.index),
    kind=st.sampled_from([CPU, HEAP]),
)
def test_a_masked_answer_is_that_of_the_rows_that_no_mask_names(
    sources: list[list[ProfileRow]], wanted: list[DeleteMask], kind: str, store: ObjectStore
) -> None:
    blocks = [wrote(store, Dataset("acme", "api", tuple(own)), id=IDS[n]) for n, own in enumerate(sources)]
    visible = {key: {0: wanted} for key, _ in blocks}
    masked = top_functions(store, blocks, "acme", "api", kind, 100, visible=visible)
    naive: dict[tuple[object, ...], ProfileRow] = {}
    for own in sources:
        for entry in own:
            if not is_hidden(entry, wanted) and (b"__profile_type__", kind.encode()) in entry.labels:
                naive.setdefault((entry.labels, entry.time_ns, entry.id), entry)
    samples = [sample for entry in naive.values() for sample in entry.samples]
    assert masked.total_value == sum(sample.value for sample in samples)
    names = {name for sample in samples for name in sample.stack}
    expected = {
        FunctionValue(
            name,
            sum(sample.value for sample in samples if sample.stack[0] == name),
            sum(sample.value for sample in samples if name in sample.stack),
        )
        for name in names
    }
    assert set(masked.functions) == expected


def test_what_the_index_does_not_show_is_not_read(store: ObjectStore) -> None:
    key, meta = wrote(store, Dataset("acme", "api", (row(),)), Dataset("acme", "web", (row(),)))
    store.delete(key)
    for visible in ({}, {key: {}}, {key: {1: ()}}, {key: {0: (mask(),)}}):
        answer = top_functions(store, [(key, meta)], "acme", "api", CPU, 10, visible=visible)
        assert (answer.functions, answer.statistics.objects_opened) == ((), 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ((), ["eu", "us"]),
        ((mask(selector='{region="eu"}'),), ["us"]),
        ((mask(selector='{region="eu"}'), mask(6, selector='{region="us"}')), []),
        ((mask(until_ms=TIME_MS + 1),), ["us"]),
        ((mask(from_ms=TIME_MS + 1),), ["eu", "us"]),
    ],
)
def test_a_dataset_index_omits_fully_masked_series(wanted: Sequence[DeleteMask], left: list[str]) -> None:
    times = {"eu": [0], "us": [0, 5]}
    entries = [
        row(labels=series_labels(region=region), time_ns=(TIME_MS + ms) * 1_000_000, id=ms)
        for region, own in times.items()
        for ms in own
    ]
    index = [entry._replace(position=3) for entry in make_sections(entries).series]
    assert [dict(entry.labels)[b"region"].decode() for entry in visible_series(index, {3: wanted})] == left
    assert visible_series(index, {2: ()}) == []


@pytest.mark.foreign_data
@pytest.mark.parametrize(
    ("service", "profile_type", "total"),
    [
        ("pyroscope-test/query-frontend", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", 180000000),
        ("pyroscope-test/query-frontend", "process_cpu:samples:count:cpu:nanoseconds", 18),
        ("pyroscope-test/query-frontend", "goroutine:goroutine:count:goroutine:count", 125),
        ("pyroscope-test/ingester", "goroutine:goroutine:count:goroutine:count", 93 + 93),
        ("pyroscope-test/ingester", "memory:alloc_objects:count:space:bytes", 80555 + 39591),
        ("pyroscope-test/ingester", "memory:alloc_space:bytes:space:bytes", 31899435 + 43983449),
        ("pyroscope-test/ingester", "memory:inuse_objects:count:space:bytes", 38217 + 19771),
        ("pyroscope-test/ingester", "memory:inuse_space:bytes:space:bytes", 15945247 + 18144991),
        ("pyroscope-test/alloy", "memory:inuse_objects:count:space:bytes", 74337),
        ("pyroscope-test/alloy", "memory:inuse_space:bytes:space:bytes", 53795375),
        ("pyroscope", "block:contentions:count:contentions:count", 10261),
        ("pyroscope", "block:delay:nanoseconds:contentions:count", 23303989407609),
        ("pyroscope", "goroutines:goroutine:count:goroutine:count", 3672),
        ("pyroscope", "memory:alloc_objects:count:space:bytes", 3625486),
        ("pyroscope", "memory:alloc_space:bytes:space:bytes", 903636145),
        ("pyroscope", "memory:inuse_objects:count:space:bytes", 810057),
        ("pyroscope", "memory:inuse_space:bytes:space:bytes", 413915637),
        ("pyroscope", "mutex:contentions:count:contentions:count", 1820),
        ("pyroscope", "mutex:delay:nanoseconds:contentions:count", 63474701),
        ("pyroscope", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", 6220000000),
        ("pyroscope", "process_cpu:samples:count:cpu:nanoseconds", 622),
    ],
)
def test_real_totals_are_the_known_ones(
    foreign_blocks: ForeignBlocks, service: str, profile_type: str, total: int
) -> None:
    blocks = [(block.key, block.meta) for block in foreign_blocks.all()]
    answer = top_functions(foreign_blocks.store, blocks, "anonymous", service, profile_type, 3)
    assert answer.total_value == total


@pytest.mark.foreign_data
@pytest.mark.parametrize(
    ("block", "cpu", "samples"), [("01JKT2XEGT", 349200000000, 34920), ("01JKT42699", 8730000000, 873)]
)
def test_real_blocks_of_one_service_sum_up(foreign_blocks: ForeignBlocks, block: str, cpu: int, samples: int) -> None:
    found = foreign_blocks[block]
    totals = [
        top_functions(foreign_blocks.store, [(found.key, found.meta)], "anonymous", "test-app", kind, 1).total_value
        for kind in (CPU, "process_cpu:samples:count:cpu:nanoseconds")
    ]
    assert totals == [cpu, samples]


@pytest.mark.foreign_data
@pytest.mark.parametrize(("block", "total"), [("01JKT2XEGT", 269600026960), ("01JKT42699", 6740000674)])
def test_series_selected_by_a_label_sum_up(foreign_blocks: ForeignBlocks, block: str, total: int) -> None:
    profiles, index = next(foreign_blocks[block].sections(0)), next(foreign_blocks[block].sections(1))
    slow = {entry.position for entry in decode_series_index(index) if (b"function", b"slow") in entry.labels}
    rows = [
        (series, value)
        for batch in ProfileTableReader(profiles).batches()
        for series, value in zip(
            batch.column("SeriesIndex").to_pylist(), batch.column("TotalValue").to_pylist(), strict=True
        )
    ]
    assert sum(value for series, value in rows if series in slow) == total
