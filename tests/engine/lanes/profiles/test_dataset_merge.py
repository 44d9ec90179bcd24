"""The rules of merging datasets, on the twin and on the compiled merge: order, dropping, numbering, symbols, damage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject, BadReference, LimitExceeded, MergeCancelled
from engine.formats.profile_block.merge_model import (
    ROW_GROUP_ROWS,
    STREAMED_PROFILES_BYTES,
    DatasetSource,
    FileSection,
    MergedDataset,
    Scratch,
    SectionData,
)
from engine.formats.profile_block.model import Function, Location, Mapping, StackTree, SymbolPartition
from engine.formats.profile_block.series.series_index import decode_series_index, encode_series_index
from engine.formats.profile_block.symbols.symbols import decode_symbols, encode_symbols
from engine.formats.profile_block.table.profile_table import SCHEMA, ProfileTableReader
from engine.query.stacks import StackResolver
from tests.engine.conftest import ForeignBlocks, Implementation, implementation_of
from tests.engine.formats.profile_block.damage import flips
from tests.engine.formats.profile_block.factories import (
    HEAP,
    TIME_NS,
    ProfileRow,
    Sample,
    Sections,
    make_sections,
    row,
    series_labels,
    table,
    table_row,
    wide_table,
)

API, WORKER = series_labels(pod="api"), series_labels(pod="worker")


def data_of(section: SectionData) -> bytes:
    return b"".join(section.chunks())


def table_of(merged: MergedDataset) -> pa.Table:
    return pa.Table.from_batches(ProfileTableReader(data_of(merged.sections[0])).batches(), SCHEMA)


def rows_of(merged: MergedDataset) -> list[tuple[str, int, int, list[tuple[tuple[str, ...], int]]]]:
    """Return (pod or type, time after TIME_NS, id, [(stack, value)]) of every row."""
    series = decode_series_index(data_of(merged.sections[1]))
    assert tuple(series) == merged.series
    stacks = {partition.id: StackResolver(partition) for partition in decode_symbols(data_of(merged.sections[2]))}
    found = []
    table = table_of(merged)
    times = table.column("TimeNanos").cast(pa.int64()).to_pylist()
    for entry, time_ns in zip(table.drop_columns(["TimeNanos"]).to_pylist(), times, strict=True):
        labels = {name.decode(): value.decode() for name, value in series[entry["SeriesIndex"]].labels}
        resolver = stacks[entry["StacktracePartition"]]
        samples = [(tuple(resolver.functions(s["StacktraceID"])), s["Value"]) for s in entry["Samples"]]
        found.append((labels.get("pod", labels["__profile_type__"]), time_ns - TIME_NS, entry["ID"].int, samples))
    return found


@pytest.fixture
def merge(implementation: Implementation, scratch: Scratch) -> Callable[..., MergedDataset]:
    """Merge sources (sections or sources) with the implementation under test."""

    def run(*sources: Sections | DatasetSource, **options: Any) -> MergedDataset:
        opened = [
            source.source(f"object {number}") if isinstance(source, Sections) else source
            for number, source in enumerate(sources)
        ]
        arguments: dict[str, Any] = {"selection": None, "scratch": scratch, "cancelled": lambda: False, **options}
        return implementation.merge_rows(opened, **arguments)

    return run


def test_rows_are_ordered_by_labels_then_time(merge: Callable[..., MergedDataset]) -> None:
    first = make_sections([row(labels=WORKER, id=1), row(labels=API, id=2, time_ns=TIME_NS + 5)])
    second = make_sections([row(labels=API, id=3), row(labels=WORKER, id=4, time_ns=TIME_NS - 1)])
    merged = merge(first, second)
    assert [found[:3] for found in rows_of(merged)] == [
        ("api", 0, 3),
        ("api", 5, 2),
        ("worker", -1, 4),
        ("worker", 0, 1),
    ]
    assert [(entry.position, entry.min_time_ns, entry.max_time_ns) for entry in merged.series] == [
        (0, TIME_NS, TIME_NS + 5),
        (1, TIME_NS - 1, TIME_NS),
    ]
    assert (merged.min_time_ns, merged.max_time_ns) == (TIME_NS - 1, TIME_NS + 5)


def test_rows_of_equal_time_keep_the_order_of_their_sources(merge: Callable[..., MergedDataset]) -> None:
    merged = merge(make_sections([row(id=9), row(id=8)]), make_sections([row(id=1), row(id=7)]))
    assert [found[2] for found in rows_of(merged)] == [9, 8, 1, 7]


def test_a_row_that_came_already_is_dropped(merge: Callable[..., MergedDataset]) -> None:
    sections = make_sections([row(id=1, labels=API), row(id=2, labels=WORKER)])
    merged = merge(sections, sections, sections)
    assert [found[2] for found in rows_of(merged)] == [1, 2]
    assert (merged.rows_read, merged.rows_dropped, merged.row_count, merged.sample_count) == (6, 4, 2, 2)


def test_rows_of_one_nanosecond_with_other_ids_are_all_kept(merge: Callable[..., MergedDataset]) -> None:
    """Equal rows can be apart: 1 2 in one source and 2 3 1 in the other."""
    merged = merge(make_sections([row(id=1), row(id=2)]), make_sections([row(id=2), row(id=3), row(id=1)]))
    assert [found[2] for found in rows_of(merged)] == [1, 2, 3]


def test_equal_ids_of_other_times_or_series_are_other_rows(merge: Callable[..., MergedDataset]) -> None:
    first = make_sections([row(id=1), row(id=1, labels=WORKER)])
    second = make_sections([row(id=1, time_ns=TIME_NS + 1)])
    assert merge(first, second).row_count == 3


def test_one_source_loses_nothing(merge: Callable[..., MergedDataset]) -> None:
    merged = merge(make_sections([row(id=1), row(id=1)]))
    assert (merged.row_count, merged.rows_dropped) == (2, 0)


def test_symbols_of_dropped_rows_are_not_copied(merge: Callable[..., MergedDataset]) -> None:
    first = make_sections([row(("kept", "main"), id=1)])
    second = make_sections([row(("dropped", "main"), id=1)])
    (partition,) = decode_symbols(data_of(merge(first, second).sections[2]))
    assert b"kept" in partition.strings
    assert b"dropped" not in partition.strings


def test_equal_symbols_of_all_sources_are_stored_once(merge: Callable[..., MergedDataset]) -> None:
    one = make_sections([row(("leaf", "main"), id=1), row(("leaf", "main"), id=2, labels=WORKER)])
    two = make_sections([row(("leaf", "main"), id=3), row(("other", "main"), id=4)])
    (partition,) = decode_symbols(data_of(merge(one, two).sections[2]))
    assert sorted(partition.strings) == sorted(
        [b"", b"build", b"/bin/program", b"program.go", b"leaf", b"main", b"other"]
    )
    assert len(partition.functions) == len(partition.locations) == 3
    assert len(partition.mappings) == 1
    assert len(partition.trees[0].parents) == 4
    assert partition.trees[0].stack_count == 2


def test_partitions_keep_their_ids(merge: Callable[..., MergedDataset]) -> None:
    large = (1 << 64) - 3
    one = make_sections([row(("a",), id=1, labels=API, partition=large), row(("b",), id=2, labels=WORKER, partition=5)])
    two = make_sections([row(("c",), id=3, labels=series_labels(pod="x"), partition=5)])
    merged = merge(one, two)
    partitions = decode_symbols(data_of(merged.sections[2]))
    assert [partition.id for partition in partitions] == [5, large]
    assert [found[3] for found in rows_of(merged)] == [[(("a",), 1)], [(("b",), 1)], [(("c",), 1)]]


def test_samples_are_neither_joined_nor_reordered(merge: Callable[..., MergedDataset]) -> None:
    samples = (
        Sample(("z", "main"), 5, 7, b"t" * 16),
        Sample(("a", "main"), 3, None, None),
        Sample(("z", "main"), 5, 7, b"t" * 16),
    )
    entry = ProfileRow(API, samples, id=bytes(16), annotations=(("key", "välue"),))
    merged = merge(make_sections([entry]), make_sections([row(id=2)]))
    found = table_of(merged).drop_columns(["TimeNanos"]).to_pylist()[0]
    assert [(s["Value"], s["SpanID"], s["TraceID"]) for s in found["Samples"]] == [
        (5, 7, b"t" * 16),
        (3, None, None),
        (5, 7, b"t" * 16),
    ]
    assert [len(row[3]) for row in rows_of(merged)] == [3, 1]
    assert found["Annotations"] == [{"Key": "key", "Value": "välue"}]
    assert (found["TotalValue"], found["DurationNanos"], found["Period"]) == (13, 10_000_000_000, None)


def test_an_empty_stack_stays_empty(merge: Callable[..., MergedDataset]) -> None:
    merged = merge(make_sections([row((), id=1), row(("main",), id=2)]), make_sections([row((), id=3)]))
    assert [found[3] for found in rows_of(merged)] == [[((), 1)], [(("main",), 1)], [((), 1)]]


def test_a_row_without_samples_is_kept(merge: Callable[..., MergedDataset]) -> None:
    merged = merge(make_sections([ProfileRow(API, ())]), make_sections([row(id=1)]))
    assert (merged.row_count, merged.sample_count) == (2, 1)


def test_no_rows_give_an_empty_dataset(merge: Callable[..., MergedDataset]) -> None:
    merged = merge(make_sections([]))
    assert (merged.row_count, merged.series, merged.min_time_ns) == (0, (), 0)
    assert ProfileTableReader(data_of(merged.sections[0])).row_count == 0


def with_symbols(sections: Sections, partitions: Sequence[SymbolPartition]) -> Sections:
    return replace(sections, symbols=encode_symbols(partitions))


def test_stacks_of_several_trees_become_one_tree(merge: Callable[..., MergedDataset]) -> None:
    """Old writers split trees; a stack id is then tree * max_nodes + node."""
    locations = [Location(0, 0, ((i, 1),)) for i in range(3)]
    partition = SymbolPartition(
        strings=[b"", b"a", b"b", b"c"],
        mappings=[Mapping(0, 0, 8, 0, 0, 0)],
        functions=[Function(i, i, 0, 0) for i in (1, 2, 3)],
        locations=locations,
        trees=[
            StackTree(parents=[-1, 0, 1], locations=[0, 0, 1], max_nodes=4),
            StackTree(parents=[-1, 0, 1, 1], locations=[0, 0, 1, 2], max_nodes=4),
        ],
    )
    entry = ProfileRow(API, (Sample((), 1), Sample((), 2), Sample((), 3)))
    profiles = table([[table_row(entry, 0, [2, 4 + 2, 4 + 3])]])
    sections = with_symbols(replace(make_sections([entry]), profiles=profiles), [partition])
    merged = merge(sections)
    assert rows_of(merged)[0][3] == [(("b", "a"), 1), (("b", "a"), 2), (("c", "a"), 3)]
    (output,) = decode_symbols(data_of(merged.sections[2]))
    assert len(output.trees) == 1
    assert output.trees[0].max_nodes == 0xFFFFFFFF


def test_lines_are_dropped_where_a_source_has_no_functions(merge: Callable[..., MergedDataset]) -> None:
    sections = make_sections([row(("leaf", "main"))])
    (partition,) = decode_symbols(sections.symbols)
    partition.functions.clear()
    partition.locations[:] = [replaced._replace(address=64 + i) for i, replaced in enumerate(partition.locations)]
    (output,) = decode_symbols(data_of(merge(with_symbols(sections, [partition])).sections[2]))
    assert [(location.address, location.lines) for location in output.locations] == [(64, ()), (65, ())]
    assert output.functions == []


def test_locations_differ_by_address_and_folding(merge: Callable[..., MergedDataset]) -> None:
    sections = make_sections([row(("leaf",), id=1)])
    sources = [sections]
    for change in ({"address": (1 << 64) - 1}, {"is_folded": True}, {"address": 1}):
        (partition,) = decode_symbols(sections.symbols)
        partition.locations[:] = [location._replace(**change) for location in partition.locations]
        sources.append(with_symbols(make_sections([row(("leaf",), id=len(sources) + 1)]), [partition]))
    (output,) = decode_symbols(data_of(merge(*sources).sections[2]))
    assert [(location.address, location.is_folded) for location in output.locations] == [
        (0, False),
        ((1 << 64) - 1, False),
        (0, True),
        (1, False),
    ]


@pytest.mark.slow
def test_a_row_group_ends_with_its_rows_or_its_bytes(merge: Callable[..., MergedDataset]) -> None:
    many = make_sections([row(id=number, time_ns=TIME_NS + number) for number in range(ROW_GROUP_ROWS + 1)])
    assert row_groups(merge(many)) == [ROW_GROUP_ROWS, 1]
    wide = wide_table([[np.ones(200_000, np.int64)] * 5])
    assert row_groups(merge(replace(make_sections([row()]), profiles=wide))) == [2, 2, 1]


def row_groups(merged: MergedDataset) -> list[int]:
    metadata = pq.ParquetFile(pa.BufferReader(data_of(merged.sections[0]))).metadata
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def test_a_large_profile_table_is_read_piece_by_piece(merge: Callable[..., MergedDataset]) -> None:
    values = np.random.default_rng(1).integers(1, 1 << 40, size=(3, 400_000))
    profiles = wide_table([[row_values] for row_values in values])
    assert len(profiles) > STREAMED_PROFILES_BYTES
    sections = replace(make_sections([row(("main",))]), profiles=profiles)
    source = sections.source("large")
    largest = 0

    def read(offset: int, length: int) -> bytes:
        nonlocal largest
        largest = max(largest, length)
        return source.read(offset, length)

    merged = merge(replace(source, read=read))
    assert (merged.row_count, merged.sample_count) == (3, 1_200_000)
    assert largest < len(profiles) / 2


def test_large_sections_go_to_files_and_are_given_back(merge: Callable[..., MergedDataset], tmp_path: Path) -> None:
    merged = merge(make_sections([row()]), scratch=Scratch(tmp_path / "files", inline_bytes_max=10))
    assert all(isinstance(section, FileSection) for section in merged.sections)
    assert rows_of(merged)[0][2] == 0
    merged.close()
    assert list((tmp_path / "files").iterdir()) == []


def test_a_selection_keeps_its_series_only(merge: Callable[..., MergedDataset]) -> None:
    one = make_sections([row(("a",), id=1, labels=API), row(("b",), id=2, labels=WORKER)])
    two = make_sections([row(("c",), id=3, labels=WORKER)])
    merged = merge(one, two, selection=[{1}, {0}])
    assert [found[:3] for found in rows_of(merged)] == [("worker", 0, 2), ("worker", 0, 3)]
    assert merged.rows_read == 2
    (partition,) = decode_symbols(data_of(merged.sections[2]))
    assert b"a" not in partition.strings


def test_a_source_without_selected_series_still_counts_as_a_source(merge: Callable[..., MergedDataset]) -> None:
    one, two = make_sections([row(id=1), row(id=1)]), make_sections([row(id=2, labels=WORKER)])
    assert merge(one, two, selection=[{0}, set()]).row_count == 1


def test_a_selection_of_everything_changes_no_byte(merge: Callable[..., MergedDataset]) -> None:
    one = make_sections([row(("z", "m"), id=1), row(("y", "z", "m"), id=2, labels=WORKER), row(("q",), id=9)])
    two = make_sections([row(("x", "m"), id=3), row(("y", "z", "m"), id=4, labels=series_labels(HEAP))])
    whole, selected = merge(one, two), merge(one, two, selection=[{0, 1}, {0, 1}])
    assert [data_of(section) for section in whole.sections] == [data_of(section) for section in selected.sections]


def test_a_cancelled_merge_stops_and_leaves_nothing(merge: Callable[..., MergedDataset], tmp_path: Path) -> None:
    sections = make_sections([row(id=number) for number in range(3)])
    for calls in range(4):
        asked = count()
        with pytest.raises(MergeCancelled):
            merge(
                sections,
                sections,
                cancelled=lambda asked=asked, calls=calls: next(asked) >= calls,
                scratch=Scratch(tmp_path / "cancelled", inline_bytes_max=0),
            )
    folder = tmp_path / "cancelled"
    assert not folder.exists() or not list(folder.iterdir())


BAD_ROWS: dict[str, dict[str, Any]] = {
    "a stack that is not in the tree": {"stack_ids": [2]},
    "an absurd stack id": {"stack_ids": [(1 << 64) - 1]},
    "a series that is not in the index": {"series": 1},
    "a partition without symbols": {"partition": 1},
}


@pytest.mark.parametrize("what", BAD_ROWS)
def test_rows_that_lead_nowhere_are_refused(merge: Callable[..., MergedDataset], what: str) -> None:
    bad = {"stack_ids": [1], "series": 0, "partition": 0, **BAD_ROWS[what]}
    entry = row(partition=bad["partition"])
    profiles = table([[table_row(entry, bad["series"], bad["stack_ids"])]])
    good = make_sections([row(id=1)])
    merge(good, replace(good, profiles=table([[table_row(entry, 0, [1])]])) if not bad["partition"] else good)
    with pytest.raises(BadReference) as caught:
        merge(good, replace(good, profiles=profiles))
    assert (caught.value.object_name, caught.value.section) == ("object 1", "profiles")


def test_rows_out_of_order_are_refused(merge: Callable[..., MergedDataset]) -> None:
    first, second = table_row(row(time_ns=TIME_NS + 1), 0, [1]), table_row(row(), 0, [1])
    sections = make_sections([row()])
    with pytest.raises(BadObject, match="order") as caught:
        merge(replace(sections, profiles=table([[first, second]])))
    assert caught.value.object_name == "object 0"


def test_two_series_of_one_number_are_refused(merge: Callable[..., MergedDataset]) -> None:
    sections = make_sections([row(labels=API), row(labels=WORKER)])
    series = encode_series_index([entry._replace(position=0) for entry in sections.series])
    with pytest.raises(BadReference):
        merge(replace(sections, series_index=series))


def test_sections_out_of_order_are_refused(merge: Callable[..., MergedDataset]) -> None:
    source = make_sections([row()]).source()
    first, second, third = source.table_of_contents
    with pytest.raises(BadObject):
        merge(replace(source, table_of_contents=(first, third, second)))


def test_symbols_that_decode_to_far_more_than_their_bytes_are_refused(merge: Callable[..., MergedDataset]) -> None:
    sections = make_sections([row(("leaf",), id=1)])
    (partition,) = decode_symbols(sections.symbols)
    partition.functions += [partition.functions[0]] * 100_000
    with pytest.raises(LimitExceeded):
        merge(with_symbols(sections, [partition]))


@pytest.mark.slow
@pytest.mark.parametrize("section", ["profiles", "series_index", "symbols"])
def test_a_flipped_byte_is_refused_with_its_object_and_section(
    merge: Callable[..., MergedDataset], section: str
) -> None:
    good = make_sections([row(("leaf", "main"), id=1), row(id=2, labels=WORKER)])
    expected = rows_of(merge(good, good))
    refused = 0
    for _, data in flips(getattr(good, section), 37):
        try:
            merged = merge(good, replace(good, **{section: data}))
        except BadObject as error:
            assert (error.object_name, error.section) == ("object 1", section)  # noqa: PT017
            refused += 1
        else:
            assert rows_of(merged) == expected
    assert refused > 4


@pytest.mark.parametrize("section", ["profiles", "series_index", "symbols"])
def test_a_truncated_section_is_refused(merge: Callable[..., MergedDataset], section: str) -> None:
    good = make_sections([row(("leaf", "main"), id=1)])
    data = getattr(good, section)
    for size in (0, 1, 7, 8, len(data) // 2, len(data) - 1):
        with pytest.raises(BadObject) as caught:
            merge(good, replace(good, **{section: data[:size]}))
        assert (caught.value.object_name, caught.value.section) == ("object 1", section)


names = st.sampled_from("abcdef")
random_rows = st.builds(
    lambda stacks, pod, kind, seconds, row_id, partition: ProfileRow(
        series_labels(kind, pod=pod),
        tuple(Sample(tuple(stack), value) for stack, value in stacks),
        time_ns=TIME_NS + seconds,
        id=row_id.to_bytes(16, "big"),
        partition=partition,
    ),
    st.lists(st.tuples(st.lists(names, max_size=5), st.integers(1, 9)), max_size=4),
    st.sampled_from(["x", "y"]),
    st.sampled_from([HEAP, "process_cpu:cpu:nanoseconds:cpu:nanoseconds"]),
    st.integers(0, 2),
    st.integers(0, 3),
    st.sampled_from([0, 7]),
)
random_sources = st.lists(st.lists(random_rows, max_size=6), min_size=1, max_size=4)


@pytest.mark.slow
@given(random_sources)
@settings(max_examples=50)
def test_a_merge_keeps_exactly_the_distinct_rows(
    implementation: Implementation, tmp_path_factory: pytest.TempPathFactory, sources: list[list[ProfileRow]]
) -> None:
    """Beside it a model: a dictionary by (labels, time, id), first source wins."""
    expected: dict[Any, ProfileRow] = {}
    extra: Counter[Any] = Counter()
    for rows in sources:
        for entry in sorted(rows, key=lambda entry: (entry.labels, entry.time_ns)):
            key = (entry.labels, entry.time_ns, entry.id) if len(sources) > 1 else (len(expected),)
            extra[key] += 1
            expected.setdefault(key, entry)
    scratch = Scratch(tmp_path_factory.getbasetemp())
    opened = [make_sections(rows).source() for rows in sources]
    merged = implementation.merge_rows(opened, selection=None, scratch=scratch, cancelled=lambda: False)
    model = sorted(
        (
            dict(entry.labels)[b"pod"].decode(),
            entry.time_ns - TIME_NS,
            int.from_bytes(entry.id, "big"),
            [(sample.stack, sample.value) for sample in entry.samples],
        )
        for entry in expected.values()
    )
    assert sorted(rows_of(merged)) == model if merged.row_count else not model
    assert merged.rows_read == sum(map(len, sources))
    assert merged.rows_dropped == merged.rows_read - len(expected)


@given(random_sources, st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_both_implementations_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, sources: list[list[ProfileRow]], random: Any
) -> None:
    scratch = Scratch(tmp_path_factory.getbasetemp())
    made = [make_sections(rows) for rows in sources]
    selection = random.choice([None, [{n for n in range(len(s.series)) if random.random() < 0.6} for s in made]])
    results = []
    for name in ("python", "compiled"):
        merged = implementation_of(name).merge_rows(
            [sections.source() for sections in made], selection=selection, scratch=scratch, cancelled=lambda: False
        )
        results.append(([data_of(section) for section in merged.sections], replace(merged, sections=())))
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.foreign_data
def test_a_real_stack_keeps_its_functions(merge: Callable[..., MergedDataset], foreign_blocks: ForeignBlocks) -> None:
    block = foreign_blocks["01JKT3DJRE"]
    profiles, series_index, symbols = (next(block.sections(number)) for number in range(3))
    source = Sections(profiles, series_index, symbols, ())
    merged = merge(source, source)
    before = Counter(_stacks(profiles, symbols))
    after = Counter(_stacks(data_of(merged.sections[0]), data_of(merged.sections[2])))
    assert merged.rows_dropped == 116
    assert before == after


def _stacks(profiles: bytes, symbols: bytes) -> list[tuple[tuple[str, ...], int]]:
    (partition,) = decode_symbols(symbols)
    resolver = StackResolver(partition)
    return [
        (tuple(resolver.functions(sample["StacktraceID"])), sample["Value"])
        for part in ProfileTableReader(profiles).batches()
        for samples in part.column("Samples").to_pylist()
        for sample in samples
    ]
