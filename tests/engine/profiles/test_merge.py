"""A whole merge job: known answers on real blocks, several tenants, refusals, and a dataset beyond the budget."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.profiles import _dataset_merge_py, merge, ulids
from engine.profiles.block_ids import result_ids
from engine.profiles.checksums import crc32c
from engine.profiles.container import BlockReader, ObjectReader
from engine.profiles.dataset_merge import merge_rows
from engine.profiles.errors import BadBlockName, BadObject, MergeCancelled, MergeRefused, Truncated
from engine.profiles.merge import merge_dataset, plan_outputs, run, write_results
from engine.profiles.merge_model import MergedDataset, Scratch
from engine.profiles.metadata import decode_metadata
from engine.profiles.model import BlockMeta
from engine.profiles.object_names import block_key
from engine.profiles.profile_table import ProfileTableReader
from engine.profiles.query import top_functions
from engine.profiles.series_cut import estimate_bytes
from engine.protocol.profile_jobs import ProfileMergeResult, ProfileMergeSpec, SourceObject
from engine.storage import ObjectNotFound, ObjectStore, open_store
from tests.engine.profiles.conftest import Block, ForeignBlocks, Implementation
from tests.engine.profiles.factories import (
    CPU,
    HEAP,
    TIME_MS,
    TIME_NS,
    Dataset,
    ProfileRow,
    make_sections,
    merge_spec,
    row,
    series_labels,
    write_block,
)

IDS = [f"01JKT3DJRETWN25NKEFZNEP1V{number}" for number in range(10)]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def result_meta(store: ObjectStore, result: ProfileMergeResult, number: int = 0) -> BlockMeta:
    """Return a result's metadata after comparing what the result says with the object."""
    block = result.blocks[number]
    meta = BlockReader.open(store, block.key).meta
    data = store.get(block.key)
    assert (block.size, block.crc32c) == (len(data), crc32c(data))
    assert (meta.id, decode_metadata(block.metadata).datasets) == (block.id, meta.datasets)
    return meta


def sections(store: ObjectStore, key: str) -> dict[str, list[bytes]]:
    reader = BlockReader.open(store, key)
    return {
        dataset.name: [reader.read(*bounds) for bounds in dataset.section_bounds()] for dataset in reader.meta.datasets
    }


class Results:
    """Where results of merging foreign blocks go: reads from the foreign store, writes to another."""

    def __init__(self, source: ObjectStore, target: ObjectStore) -> None:
        self._source, self.target = source, target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target if name == "open_writer" else self._source, name)


def merge_foreign(
    foreign: ForeignBlocks, blocks: list[Block], store: ObjectStore, scratch: Scratch, **fields: Any
) -> ProfileMergeResult:
    meta = blocks[0].meta
    spec = merge_spec(
        [block.source() for block in blocks],
        tenant=meta.tenant,
        shard=meta.shard,
        level=max(block.meta.compaction_level for block in blocks),
        **fields,
    )
    return run(spec, Results(foreign.store, store), scratch=scratch)  # type: ignore[arg-type]


@pytest.mark.foreign_data
def test_five_real_segments_become_the_known_block(
    merging: Implementation, foreign_blocks: ForeignBlocks, store: ObjectStore, scratch: Scratch
) -> None:
    blocks = [foreign_blocks[name] for name in ("01J2VJQPYD", "01J2VJQRTM", "01J2VJQV54", "01J2VJQYQV", "01J2VJR0R3")]
    result = merge_foreign(foreign_blocks, blocks, store, scratch)
    meta = result_meta(store, result)
    assert (meta.id, meta.compaction_level, meta.shard) == ("01J2VJQPYDBY3Y1NYSY0PGJ8AX", 1, 1)
    assert meta.string_table == (
        "",
        "anonymous",
        "pyroscope-test/ingester",
        "pyroscope-test/query-frontend",
        "pyroscope-test/alloy",
        "__tenant_dataset__",
        "dataset_tsdb_index",
    )
    found = sections(store, result.blocks[0].key)
    assert {name: [(len(part), sha(part)) for part in parts[-2:]] for name, parts in found.items()} == {
        "pyroscope-test/alloy": [(2605, "2ca08bc41dc4d5e4"), (19630, "8467b7b30be3e431")],
        "pyroscope-test/ingester": [(5307, "17e330daa5bff8c3"), (48794, "488a32a8277ef2b6")],
        "pyroscope-test/query-frontend": [(3019, "9a0adf4dc965dbde"), (21362, "0633f500a01b29e8")],
        "": [(7487, "6fec080ea63f7b98")],
    }
    counts = {name: _counts(parts[0]) for name, parts in found.items() if name}
    assert counts == {
        "pyroscope-test/alloy": (2, 112),
        "pyroscope-test/ingester": (10, 401),
        "pyroscope-test/query-frontend": (3, 88),
    }
    assert (result.rows_read, result.rows_dropped) == (15, 0)


def _counts(profiles: bytes) -> tuple[int, int]:
    reader = ProfileTableReader(profiles)
    return reader.row_count, reader.sample_count


@pytest.mark.foreign_data
@pytest.mark.parametrize(
    ("names", "block_id", "level", "rows", "samples", "series_index", "symbols", "dataset_index"),
    [
        (
            ["01JKT2XEGT", "01JKT42699"],
            "01JKT2XEGTDZNFFF2SW5JAYX44",
            4,
            246,
            39360,
            (8723, "a11555564f1d5004"),
            (2047, "86b0db61e0c70592"),
            (7767, "02127b6f320d7bbf"),
        ),
        (
            ["01JKT3DJRE"],
            "01JKT3DJRE1GB7PK0F78AM2FAM",
            4,
            116,
            6528,
            (4728, "e43717a9b3668a7a"),
            (157199, "7808f4eb23ecb0a1"),
            (4556, "8988779c10731a76"),
        ),
        (
            ["01JKT42699", "01JKT42699"],
            "01JKT42699SC1ZE82BNSMS76VV",
            3,
            6,
            960,
            (2191, "077a251af786c4f0"),
            (2047, "86b0db61e0c70592"),
            (2103, "5ce436018c0696f5"),
        ),
    ],
)
def test_real_blocks_become_the_known_ones(
    merging: Implementation,
    foreign_blocks: ForeignBlocks,
    store: ObjectStore,
    scratch: Scratch,
    names: list[str],
    block_id: str,
    level: int,
    rows: int,
    samples: int,
    series_index: tuple[int, str],
    symbols: tuple[int, str],
    dataset_index: tuple[int, str],
) -> None:
    result = merge_foreign(foreign_blocks, [foreign_blocks[name] for name in names], store, scratch)
    meta = result_meta(store, result)
    assert (meta.id, meta.compaction_level) == (block_id, level)
    (dataset, index) = sections(store, result.blocks[0].key).values()
    assert _counts(dataset[0]) == (rows, samples)
    assert [(len(part), sha(part)) for part in (*dataset[1:], *index)] == [series_index, symbols, dataset_index]


@pytest.mark.foreign_data
def test_merging_a_final_block_again_gives_its_own_symbols(
    merging: Implementation, foreign_blocks: ForeignBlocks, store: ObjectStore, scratch: Scratch
) -> None:
    for name in ("01JKT2XEGT", "01JKT3DJRE"):
        block = foreign_blocks[name]
        result = merge_foreign(foreign_blocks, [block], store, scratch)
        assert next(iter(sections(store, result.blocks[0].key).values()))[2] == next(block.sections(2))


@pytest.mark.foreign_data
def test_the_top_functions_are_the_known_ones_before_and_after(
    merging: Implementation, foreign_blocks: ForeignBlocks, store: ObjectStore, scratch: Scratch
) -> None:
    block = foreign_blocks["01JKT3DJRE"]
    before = top_functions(foreign_blocks.store, [(block.key, block.meta)], "anonymous", "pyroscope", CPU, 10)
    assert [(entry.self_value, entry.function) for entry in before.functions] == [
        (1120000000, "syscall.syscall"),
        (710000000, "runtime.pthread_cond_signal"),
        (650000000, "runtime.kevent"),
        (500000000, "runtime.pthread_cond_wait"),
        (290000000, "runtime.madvise"),
        (270000000, "runtime.memclrNoHeapPointers"),
        (160000000, "runtime.scanobject"),
        (140000000, "github.com/klauspost/compress/flate.(*fastEncL5).Encode"),
        (130000000, "runtime.pthread_kill"),
        (90000000, "runtime.typePointers.next"),
    ]
    assert before.total_value == 6220000000
    result = merge_foreign(foreign_blocks, [block], store, scratch, task_memory_bytes=600_000)
    assert len(result.blocks) > 1
    written = [(entry.key, result_meta(store, result, number)) for number, entry in enumerate(result.blocks)]
    after = top_functions(store, written, "anonymous", "pyroscope", CPU, 10)
    assert (after.functions, after.total_value) == (before.functions, before.total_value)


def two_segments(store: ObjectStore) -> list[SourceObject]:
    """Two segments of two tenants; beta comes first in the walk, acme sorts first."""
    first = [
        Dataset("beta", "web", (row(("web", "main"), id=1, value=5),)),
        Dataset("beta", "api", (row(("api", "main"), id=2, value=7),)),
    ]
    second = [
        Dataset("acme", "web", (row(("acme",), id=3, value=11, time_ns=TIME_NS + 5_000_000),)),
        Dataset("beta", "web", (row(("web", "main"), id=4, value=13), row(("web", "main"), id=1, value=5))),
    ]
    return [write_block(store, first, id=IDS[0]), write_block(store, second, id=IDS[1])]


def test_every_tenant_gets_a_block_of_its_own(merging: Implementation, store: ObjectStore, scratch: Scratch) -> None:
    sources = two_segments(store)
    spec = merge_spec(sources, fence=17)
    result = run(spec, store, scratch=scratch)
    metas = [result_meta(store, result, number) for number in range(2)]
    assert [meta.tenant for meta in metas] == ["beta", "acme"]
    assert [[dataset.name for dataset in meta.datasets] for meta in metas] == [["api", "web", ""], ["web", ""]]
    assert [block.id for block in result.blocks] == result_ids([(IDS[0], 0), (IDS[1], 0)], 2, 17)
    assert result.blocks[1].key == f"blocks/7/acme/{result.blocks[1].id}/block.bin"
    assert (result.sources, result.rows_read, result.rows_dropped) == ((IDS[0], IDS[1]), 5, 1)
    assert (metas[1].min_time_ms, metas[1].max_time_ms) == (TIME_MS + 5, TIME_MS + 5)
    assert {meta.created_by for meta in metas} == {""}


def test_the_dataset_index_leads_to_the_datasets(merging: Implementation, store: ObjectStore, scratch: Scratch) -> None:
    result = run(merge_spec(two_segments(store)), store, scratch=scratch)
    reader = BlockReader.open(store, result.blocks[0].key)
    series = reader.read_dataset_index("beta")
    assert series is not None
    assert [(entry.position, entry.min_time_ns, entry.max_time_ns) for entry in series] == [(0, 0, 0), (1, 0, 0)]
    assert reader.read_dataset_index("acme") is None


def test_label_sets_of_all_sources_are_joined(merging: Implementation, store: ObjectStore, scratch: Scratch) -> None:
    heap = row(labels=series_labels(HEAP), id=2)
    sources = [
        write_block(store, [Dataset("acme", "api", (row(id=1),))], id=IDS[0]),
        write_block(store, [Dataset("acme", "api", (heap, row(id=3)))], id=IDS[1]),
    ]
    meta = result_meta(store, run(merge_spec(sources), store, scratch=scratch))
    name = ("service_name", "api")
    assert meta.datasets[0].labels == (
        (name, ("__profile_type__", CPU)),
        (name, ("__profile_type__", HEAP)),
    )
    assert meta.datasets[1].labels == ((("__tenant_dataset__", "dataset_tsdb_index"),),)


def test_the_three_steps_give_the_same_bytes_as_one_run(
    merging: Implementation, store: ObjectStore, scratch: Scratch
) -> None:
    spec = merge_spec(two_segments(store), fence=3)
    result = run(spec, store, scratch=scratch)
    whole = [store.get(block.key) for block in result.blocks]
    for block in result.blocks:
        store.delete(block.key)
    outputs = plan_outputs(ProfileMergeSpec.from_json(spec.to_json()))
    merged = [
        [merge_dataset(plan, store, budget_bytes=1 << 30, scratch=scratch) for plan in output.datasets]
        for output in outputs
    ]
    again = write_results(spec, outputs, merged, store)
    assert again == result == ProfileMergeResult.from_json(result.to_json())
    assert [store.get(block.key) for block in again.blocks] == whole


def test_a_small_dataset_costs_one_request(merging: Implementation, store: ObjectStore, scratch: Scratch) -> None:
    sources = two_segments(store)
    before = store.usage.requests()
    run(merge_spec(sources), store, scratch=scratch)
    after = store.usage.requests()
    assert after["get_range"] - before.get("get_range", 0) == 4
    assert after.get("get", 0) == before.get("get", 0)


def test_merging_level_by_level_ends_with_the_same_rows(
    merging: Implementation, store: ObjectStore, scratch: Scratch
) -> None:
    sources = [
        write_block(store, [Dataset("acme", "api", (row((f"f{n}", "main"), id=n, value=n + 1),))], id=IDS[n])
        for n in range(4)
    ]
    halves = [run(merge_spec(sources[start : start + 2]), store, scratch=scratch) for start in (0, 2)]
    second = merge_spec([_as_source(store, half) for half in halves], tenant="acme", level=1)
    stepwise = run(second, store, scratch=scratch)
    at_once = run(merge_spec(sources), store, scratch=scratch)
    answers = [
        top_functions(store, [(result.blocks[0].key, result_meta(store, result))], "acme", "api", CPU, 10).functions
        for result in (stepwise, at_once)
    ]
    assert answers[0] == answers[1]
    assert sum(entry.self_value for entry in answers[0]) == 10


def _as_source(store: ObjectStore, result: ProfileMergeResult) -> SourceObject:
    (block,) = result.blocks
    return SourceObject(id=block.id, key=block.key, size=block.size, metadata=block.metadata)


def test_a_dataset_without_rows_is_left_out(merging: Implementation, store: ObjectStore, scratch: Scratch) -> None:
    spec = merge_spec(two_segments(store))
    outputs = plan_outputs(spec)
    empty = merge_rows([make_sections([]).source()], scratch=scratch, cancelled=lambda: False)
    real = merge_dataset(outputs[0].datasets[1], store, budget_bytes=1 << 30, scratch=scratch)
    result = write_results(spec, outputs, [[[empty], real], [[empty]]], store)
    assert len(result.blocks) == 1
    assert [dataset.name for dataset in result_meta(store, result).datasets] == ["web", ""]


def spoiled(source: SourceObject, **fields: Any) -> SourceObject:
    values = {"id": source.id, "key": source.key, "size": source.size, "metadata": source.metadata}
    return SourceObject(**{**values, **fields})


def test_sources_that_do_not_belong_together_are_refused(store: ObjectStore, scratch: Scratch) -> None:
    sources = two_segments(store)
    acme = write_block(store, [Dataset("acme", "api", (row(),))], id=IDS[2], level=1, tenant="acme")
    for wrong, words in [
        (merge_spec([]), "at least one"),
        (merge_spec(sources, shard=8), "shard 8"),
        (merge_spec(sources, level=1), "holds"),
        (merge_spec([acme]), "level"),
        (merge_spec([acme], level=1, tenant="beta"), "tenant 'beta'"),
        (merge_spec([acme, sources[0]], level=1, tenant="acme"), "tenant 'acme'"),
    ]:
        with pytest.raises(MergeRefused, match=words):
            run(wrong, store, scratch=scratch)


def test_a_tenant_that_cannot_be_a_folder_is_refused(store: ObjectStore, scratch: Scratch) -> None:
    source = write_block(store, [Dataset("../up", "api", (row(),))])
    with pytest.raises(BadBlockName):
        run(merge_spec([source]), store, scratch=scratch)


def keys(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list("blocks/")]


@pytest.mark.parametrize("what", ["metadata", "missing", "truncated", "larger than it is", "flipped"])
def test_one_bad_source_fails_the_job_and_nothing_is_written(
    merging: Implementation, store: ObjectStore, scratch: Scratch, what: str
) -> None:
    good, bad = two_segments(store)
    data = store.get(bad.key)
    errors: dict[str, type[Exception]] = {"missing": ObjectNotFound, "truncated": Truncated}
    if what == "metadata":
        bad = spoiled(bad, metadata=bad.metadata[:-1])
    elif what == "missing":
        store.delete(bad.key)
    elif what == "truncated":
        store.put(bad.key, data[: len(data) // 3])
    elif what == "larger than it is":
        store.put(bad.key, data[:-2000])
    else:
        end_of_symbols = decode_metadata(bad.metadata).datasets[0].size - 1
        store.put(bad.key, data[:end_of_symbols] + b"?" + data[end_of_symbols + 1 :])
    with pytest.raises(errors.get(what, BadObject)) as caught:
        run(merge_spec([good, bad]), store, scratch=scratch)
    assert bad.key in str(caught.value)
    assert keys(store) == []
    assert not scratch.directory.exists() or list(scratch.directory.iterdir()) == []


def test_a_cancelled_job_writes_nothing(merging: Implementation, store: ObjectStore, tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "small", inline_bytes_max=100)
    spec = merge_spec(two_segments(store))
    run(spec, open_store(store.url), scratch=scratch, cancelled=lambda: False)
    for block in keys(store):
        store.delete(block)
    for calls in (0, 3, 8):
        asked = iter(range(1000))
        with pytest.raises(MergeCancelled):
            run(spec, store, scratch=scratch, cancelled=lambda asked=asked, calls=calls: next(asked) >= calls)
        assert keys(store) == []
        assert list(scratch.directory.iterdir()) == []


SERIES = 12
STACKS = 120


def wide_rows() -> tuple[ProfileRow, ...]:
    """One row per series; a series shares a tenth of its stacks with all others."""
    rows = []
    for series in range(SERIES):
        names = [f"shared {n}" if n % 10 == 0 else f"series {series} function {n} {'x' * 40}" for n in range(STACKS)]
        samples = [row((name, f"caller of {name}", "main"), value=n + 1).samples[0] for n, name in enumerate(names)]
        labels = series_labels(pod=f"pod {series:02}")
        rows.append(ProfileRow(labels, tuple(samples), id=series.to_bytes(16, "big")))
    return tuple(rows)


@pytest.fixture
def wide_source(store: ObjectStore) -> list[SourceObject]:
    """Two segments with one large dataset each, and a small one of another tenant."""
    rows = wide_rows()
    small = Dataset("zeta", "api", (row(id=77),))
    return [
        write_block(store, [Dataset("acme", "big", rows[0::2] + rows[1:4]), small], id=IDS[0]),
        write_block(store, [Dataset("acme", "big", rows[1::2])], id=IDS[1]),
    ]


def estimate(spec: ProfileMergeSpec, store: ObjectStore) -> int:
    sources = plan_outputs(spec)[0].datasets[0].sources
    readers = [(ObjectReader(store, source.key, source.object_size), source.dataset) for source in sources]
    return estimate_bytes([reader.dataset_source(dataset) for reader, dataset in readers])


def test_a_dataset_three_times_the_budget_is_cut_by_series(
    merging: Implementation, store: ObjectStore, scratch: Scratch, wide_source: list[SourceObject]
) -> None:
    whole_spec = merge_spec(wide_source, fence=1)
    whole = run(whole_spec, store, scratch=scratch)
    assert len(whole.blocks) == 2
    budget = estimate(whole_spec, store) // 3
    cut = run(merge_spec(wide_source, fence=2, task_memory_bytes=budget), store, scratch=scratch)
    metas = [result_meta(store, cut, number) for number in range(len(cut.blocks))]
    assert len(cut.blocks) >= 4
    assert [meta.tenant for meta in metas] == ["acme", "zeta"] + ["acme"] * (len(metas) - 2)
    sources = [(source.id, 0) for source in wide_source]
    assert [block.id for block in cut.blocks] == result_ids(sources, len(cut.blocks), 2)
    assert (cut.rows_read, cut.rows_dropped) == (whole.rows_read, whole.rows_dropped) == (16, 3)
    acme = [(block.key, meta) for block, meta in zip(cut.blocks, metas, strict=True) if meta.tenant == "acme"]
    pods = [_pods(store, key) for key, _ in acme]
    assert [pod for part in pods for pod in part] == sorted(f"pod {n:02}" for n in range(SERIES))
    assert all(part for part in pods)
    answers = [
        top_functions(store, blocks, "acme", "big", CPU, 10_000)
        for blocks in ([(whole.blocks[0].key, result_meta(store, whole))], acme)
    ]
    assert answers[0].functions == answers[1].functions
    assert answers[0].total_value == answers[1].total_value == SERIES * STACKS * (STACKS + 1) // 2


def _pods(store: ObjectStore, key: str) -> list[str]:
    series = BlockReader.open(store, key).read_dataset_index("acme")
    assert series is not None
    return [dict(entry.labels)[b"pod"].decode() for entry in series]


def test_a_cut_merge_holds_less_at_once(store: ObjectStore, scratch: Scratch, wide_source: list[SourceObject]) -> None:
    """Measured on the twin, whose memory Python can count."""
    spec = merge_spec(wide_source[:1])
    (plan, _) = plan_outputs(spec)
    peaks = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "merge_rows", _dataset_merge_py.merge_rows)
        for budget in (1 << 40, estimate(spec, store) // 3):
            tracemalloc.start()
            parts = merge_dataset(plan.datasets[0], store, budget_bytes=budget, scratch=scratch)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert (len(parts) > 1) == (budget < 1 << 40)
    assert peaks[1] < 0.75 * peaks[0]


def test_rows_of_every_part_add_up(
    merging: Implementation, store: ObjectStore, scratch: Scratch, wide_source: list[SourceObject]
) -> None:
    (plan, _) = plan_outputs(merge_spec(wide_source))
    budget = estimate(merge_spec(wide_source), store) // 5
    parts: list[MergedDataset] = merge_dataset(plan.datasets[0], store, budget_bytes=budget, scratch=scratch)
    fingerprints = Counter(entry.fingerprint for part in parts for entry in part.series)
    assert set(fingerprints.values()) == {1}
    assert len(fingerprints) == SERIES
    assert sum(part.sample_count for part in parts) == SERIES * STACKS


def test_result_keys_follow_the_first_source_in_time(
    merging: Implementation, store: ObjectStore, scratch: Scratch
) -> None:
    result = run(merge_spec(two_segments(store)), store, scratch=scratch)
    assert {ulids.time_ms(block.id) for block in result.blocks} == {ulids.time_ms(IDS[0])}
    assert result.blocks[0].key == block_key(7, "beta", 1, result.blocks[0].id)


def test_large_values_keep_their_sum(merging: Implementation, store: ObjectStore, scratch: Scratch) -> None:
    values = [int(value) for value in np.random.default_rng(3).integers(1, 1 << 61, size=6)]
    rows = tuple(row(("f", "main"), id=n, value=value) for n, value in enumerate(values))
    source = write_block(store, [Dataset("acme", "api", rows)])
    result = run(merge_spec([source]), store, scratch=scratch)
    answer = top_functions(store, [(result.blocks[0].key, result_meta(store, result))], "acme", "api", CPU, 1)
    assert answer.total_value == sum(values)
