"""Delete masks: a merge leaves out exactly the rows that they name, and is otherwise the merge of what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject, MergeCancelled
from engine.formats.profile_block.merge_model import MergedDataset, Scratch
from engine.formats.profile_block.model import DatasetMeta
from engine.formats.profile_block.symbols.symbols import decode_symbols
from engine.formats.profile_block.table.profile_table import ProfileTableReader
from engine.lanes.profiles.jobs import DeleteMask, ProfileMergeSpec
from engine.lanes.profiles.merge.masks import masked_sources, masks_on
from engine.lanes.profiles.merge.merge import merge_dataset, plan_outputs, run
from engine.lanes.profiles.results import read_profile_result
from engine.query.stacks import StackResolver
from engine.storage import ObjectStore
from tests.engine.conftest import Implementation
from tests.engine.formats.profile_block.factories import (
    CPU,
    HEAP,
    TIME_MS,
    Dataset,
    ProfileRow,
    make_sections,
    merge_spec,
    row,
    series_labels,
    write_block,
)
from tests.engine.formats.profile_block.results import result_meta

REGIONS = ("eu", "us")
IDS = [f"01JKT3DJRETWN25NKEFZNEP1V{number}" for number in range(10)]


def mask(index: int = 5, tenant: str = "acme", **fields: object) -> DeleteMask:
    return DeleteMask(index=index, tenant=tenant, **fields)


def is_hidden(entry: ProfileRow, masks: Sequence[DeleteMask]) -> bool:
    """Say what the masks of these tests mean, in the plainest words: their selectors name a region or nothing."""
    region = dict(entry.labels)[b"region"].decode()
    return any(
        (not each.selector or each.selector == f'{{region="{region}"}}')
        and (each.from_ms is None or entry.time_ns >= each.from_ms * 1_000_000)
        and (each.until_ms is None or entry.time_ns < each.until_ms * 1_000_000)
        for each in masks
    )


@st.composite
def rows(draw: st.DrawFn) -> ProfileRow:
    labels = series_labels(draw(st.sampled_from([CPU, HEAP])), region=draw(st.sampled_from(REGIONS)))
    offset_ns = draw(st.integers(0, 4)) * 1_000_000 + draw(st.sampled_from([0, 999_999]))
    stack = draw(st.sampled_from([("main",), ("main", "run"), ("read", "main"), ("idle",)]))
    return row(stack, id=draw(st.integers(0, 9)), labels=labels, time_ns=TIME_MS * 1_000_000 + offset_ns)


@st.composite
def masks(draw: st.DrawFn) -> DeleteMask:
    first, last = sorted(draw(st.lists(st.integers(0, 5), min_size=2, max_size=2, unique=True)))
    return mask(
        index=draw(st.integers(1, 1000)),
        selector=draw(st.sampled_from(["", '{region="eu"}', '{region="us"}'])),
        from_ms=draw(st.sampled_from([None, TIME_MS + first])),
        until_ms=draw(st.sampled_from([None, TIME_MS + last])),
    )


def contents(merged: MergedDataset) -> tuple[object, ...]:
    """Return the rows of a merged dataset with their stacks, its series, and its counts: all but symbols' order."""
    profiles, _, symbols = (b"".join(section.chunks()) for section in merged.sections)
    resolvers = {partition.id: StackResolver(partition) for partition in decode_symbols(symbols)}
    entries = [
        entry
        | {
            "Samples": [
                (tuple(resolvers[entry["StacktracePartition"]].functions(each["StacktraceID"])), each["Value"])
                for each in entry["Samples"]
            ]
        }
        for batch in ProfileTableReader(profiles).batches()
        for entry in batch.to_pylist()
    ]
    return (entries, merged.series, merged.row_count, merged.sample_count, merged.min_time_ns, merged.max_time_ns)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(
    sources=st.lists(st.lists(rows(), min_size=1, max_size=8), min_size=2, max_size=3),
    wanted=st.lists(masks(), max_size=3, unique_by=lambda each: each.index),
)
def test_a_masked_merge_is_the_merge_of_the_rows_that_no_mask_names(
    sources: list[list[ProfileRow]], wanted: list[DeleteMask], merging: Implementation, scratch: Scratch
) -> None:
    opened = [make_sections(entries).source(f"source-{number}") for number, entries in enumerate(sources)]
    left = [make_sections(entry for entry in entries if not is_hidden(entry, wanted)).source() for entries in sources]
    with masked_sources(opened, [wanted] * len(opened), scratch, lambda: False) as masked:
        selection = [
            each.kept if each.kept is not None else {entry.position for entry in make_sections(entries).series}
            for each, entries in zip(masked, sources, strict=True)
        ]
        found = merging.merge_rows(
            [each.source for each in masked], selection=selection, scratch=scratch, cancelled=lambda: False
        )
    expected = merging.merge_rows(left, selection=None, scratch=scratch, cancelled=lambda: False)
    assert contents(found) == contents(expected)


def two_sources(store: ObjectStore) -> ProfileMergeSpec:
    """A job over two segments of the services web and api of acme, and web of beta."""
    europe, america = series_labels(region="eu"), series_labels(region="us")
    first = [
        Dataset("acme", "web", (row(("old",), id=1, labels=europe), row(("new",), id=2, labels=america))),
        Dataset("acme", "api", (row(("api",), id=3, labels=america),)),
        Dataset("beta", "web", (row(("beta",), id=4, labels=europe),)),
    ]
    second = [Dataset("acme", "web", (row(("late",), id=5, labels=europe),))]
    return merge_spec([write_block(store, first, id=IDS[0]), write_block(store, second, id=IDS[1])], fence=9)


def masked_spec(spec: ProfileMergeSpec, *wanted: DeleteMask, applied: Sequence[int] = (0, 0)) -> ProfileMergeSpec:
    """The same job with masks; ``applied`` are the watermarks of its sources. It travels as JSON."""
    told = spec.to_json() | {"masks": [each.to_json() for each in wanted]}
    for source, index in zip(told["sources"], applied, strict=True):
        source["masks_applied"] = index
    return ProfileMergeSpec.from_json(told)


def rows_by_service(spec: ProfileMergeSpec, store: ObjectStore, scratch: Scratch) -> dict[str, int]:
    merged = {}
    for output in plan_outputs(spec):
        for plan in output.datasets:
            parts = merge_dataset(plan, store, budget_bytes=spec.task_memory_bytes, scratch=scratch)
            merged[f"{plan.tenant}/{plan.name}"] = sum(part.row_count for part in parts)
    return merged


def test_a_mask_is_for_its_tenant_and_service_only(store: ObjectStore, scratch: Scratch) -> None:
    spec = two_sources(store)
    assert rows_by_service(spec, store, scratch) == {"acme/api": 1, "acme/web": 3, "beta/web": 1}
    europe = masked_spec(spec, mask(service="web", selector='{region="eu"}'))
    assert rows_by_service(europe, store, scratch) == {"acme/api": 1, "acme/web": 1, "beta/web": 1}


def test_what_came_after_a_delete_request_stays(store: ObjectStore, scratch: Scratch) -> None:
    europe = masked_spec(two_sources(store), mask(7, selector='{region="eu"}'), applied=(6, 7))
    assert rows_by_service(europe, store, scratch)["acme/web"] == 2


def test_a_dataset_that_a_mask_takes_whole_is_not_even_read(store: ObjectStore, scratch: Scratch) -> None:
    spec = masked_spec(two_sources(store), mask())
    store.delete(spec.sources[1].key)
    assert rows_by_service(spec, store, scratch) == {"beta/web": 1}


def test_a_job_of_which_nothing_is_left_has_no_result_block(store: ObjectStore, scratch: Scratch) -> None:
    result = run(masked_spec(two_sources(store), mask(5), mask(6, "beta")), store, scratch=scratch)
    assert (result.blocks, result.masks) == ((), (5, 6))
    assert read_profile_result(result.to_json()) == result


def test_no_name_of_what_was_deleted_is_left_in_a_result(store: ObjectStore, scratch: Scratch) -> None:
    result = run(masked_spec(two_sources(store), mask(service="api")), store, scratch=scratch)
    meta = result_meta(store, result)
    assert [dataset.name for dataset in meta.datasets] == ["web", ""]
    assert "api" not in meta.string_table


def test_a_rewrite_leaves_its_block_on_its_level(store: ObjectStore, scratch: Scratch) -> None:
    source = write_block(store, [Dataset("acme", "web", (row(),))], id=IDS[0], level=3, tenant="acme")
    spec = merge_spec([source], level=3, tenant="acme", fence=4, is_rewrite=True)
    meta = result_meta(store, run(ProfileMergeSpec.from_json(spec.to_json()), store, scratch=scratch))
    assert (meta.compaction_level, meta.id == IDS[0]) == (3, False)


def test_masks_hold_when_a_dataset_is_cut_by_series(store: ObjectStore, scratch: Scratch) -> None:
    spec = masked_spec(two_sources(store), mask(selector='{region="eu"}'))
    [plan] = [plan for output in plan_outputs(spec) for plan in output.datasets if plan.name == "web"][:1]
    whole = merge_dataset(plan, store, budget_bytes=1 << 30, scratch=scratch)
    cut = merge_dataset(plan, store, budget_bytes=1, scratch=scratch)
    assert sum(part.row_count for part in cut) == sum(part.row_count for part in whole) == 1


def test_rows_that_stay_may_be_kept_in_a_file(store: ObjectStore, scratch: Scratch) -> None:
    small = Scratch(scratch.directory, inline_bytes_max=0)
    late = mask(until_ms=TIME_MS + 1, selector='{region="eu"}')
    assert rows_by_service(masked_spec(two_sources(store), late), store, small)["acme/web"] == 1


@pytest.mark.parametrize("wanted", [mask(selector='{region="eu"}'), mask(until_ms=TIME_MS + 1)])
def test_a_damaged_source_is_named(store: ObjectStore, scratch: Scratch, wanted: DeleteMask) -> None:
    spec = masked_spec(two_sources(store), wanted)
    source = spec.sources[1]
    store.put(source.key, bytes(source.size))
    with pytest.raises(BadObject) as caught:
        run(spec, store, scratch=scratch)
    assert caught.value.object_name == source.key
    assert not scratch.directory.exists() or not list(scratch.directory.iterdir())


def test_reading_rows_for_a_mask_stops_when_the_job_is_lost(scratch: Scratch) -> None:
    source = make_sections([row()]).source()
    with (
        pytest.raises(MergeCancelled),
        masked_sources([source], [[mask(until_ms=TIME_MS + 1)]], scratch, lambda: True),
    ):
        pass


def test_a_mask_with_a_time_reads_the_rows_and_believes_no_index(scratch: Scratch, merging: Implementation) -> None:
    honest = make_sections([row(id=1), row(id=2, time_ns=(TIME_MS + 9) * 1_000_000)])
    lying = [entry._replace(min_time_ns=0, max_time_ns=1) for entry in honest.series]
    source = replace(honest, series_index=merging.encode_series_index(lying)).source()
    with masked_sources([source], [[mask(from_ms=TIME_MS + 5)]], scratch, lambda: False) as masked:
        merged = merging.merge_rows([masked[0].source], selection=None, scratch=scratch, cancelled=lambda: False)
    assert merged.row_count == 1


def test_masks_on_a_dataset_are_those_newer_than_what_its_bytes_obey() -> None:
    dataset = DatasetMeta(tenant="acme", name="web", min_time_ms=0, max_time_ms=1, table_of_contents=(0, 1, 2), size=3)
    wanted = [mask(4), mask(5), mask(6, service="web"), mask(7, service="api"), mask(8, "beta")]
    assert [each.index for each in masks_on(dataset, 4, wanted)] == [5, 6]
