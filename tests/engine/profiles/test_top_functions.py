"""The smallest query: right sums, each row once, only the objects that matter opened, damage named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.profiles.container import BlockReader
from engine.profiles.errors import BadObject
from engine.profiles.model import BlockMeta
from engine.profiles.profile_table import ProfileTableReader
from engine.profiles.query import FunctionValue, TopFunctions, top_functions
from engine.profiles.series_index import decode_series_index
from engine.storage import ObjectStore
from tests.engine.profiles.conftest import ForeignBlocks
from tests.engine.profiles.factories import CPU, HEAP, Dataset, row, series_labels, write_block

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
