"""A whole merge job: several tenants, the three steps, refusals, and bad sources that leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.core import ulids
from engine.core.block_ids import result_ids
from engine.core.errors import BadBlockName, BadObject, MergeCancelled, MergeRefused, Truncated
from engine.formats.profile_block.container.container import BlockReader
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec, SourceObject
from engine.lanes.profiles.merge.dataset_merge import merge_rows
from engine.lanes.profiles.merge.merge import merge_dataset, plan_outputs, run, write_results
from engine.query.top_functions import top_functions
from engine.storage import ObjectNotFound, ObjectStore, open_store
from tests.engine.conftest import Implementation
from tests.engine.formats.profile_block.factories import (
    CPU,
    HEAP,
    TIME_MS,
    TIME_NS,
    Dataset,
    make_sections,
    merge_spec,
    row,
    series_labels,
    write_block,
)
from tests.engine.formats.profile_block.results import result_meta

IDS = [f"01JKT3DJRETWN25NKEFZNEP1V{number}" for number in range(10)]


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
