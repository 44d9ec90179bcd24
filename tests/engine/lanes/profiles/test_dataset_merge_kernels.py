"""The compiled merge (_dataset_merge and the parts under it: _merge_source, _series_ranks, _symbol_translation,
_symbol_pruning, _output_partition, _row_columns) gives the bytes of the twin on symbols and rows of every kind."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject
from engine.formats.profile_block.merge_model import ROW_GROUP_ROWS, STREAMED_PROFILES_BYTES, MergedDataset, Scratch
from engine.formats.profile_block.model import Function, IndexedSeries, Location, Mapping, StackTree, SymbolPartition
from engine.formats.profile_block.series.series_index import encode_series_index
from engine.formats.profile_block.symbols.symbols import encode_symbols
from engine.formats.profile_block.table import _profile_pages as pages
from engine.formats.profile_block.table.profile_table import SCHEMA
from engine.lanes.profiles.merge import _dataset_merge as compiled
from engine.lanes.profiles.merge import _dataset_merge_py as twin
from tests.engine.formats.profile_block.factories import (
    TIME_NS,
    Sections,
    batch,
    fingerprint,
    make_sections,
    row,
    series_labels,
    table,
    table_row,
)

LABELS = [series_labels(pod=pod) for pod in "abc"]
INT32 = st.integers(-5, 5) | st.integers(-(1 << 31), (1 << 31) - 1)
UINT64 = st.sampled_from([0, 1, (1 << 64) - 1])
MAYBE = st.none() | st.integers(-9, 9)


@st.composite
def trees(draw: st.DrawFn, location_count: int, max_nodes: int) -> StackTree:
    count = draw(st.integers(0, min(10, max_nodes - 1)))
    parents = [draw(st.integers(0, node)) for node in range(count)]
    locations = [draw(st.integers(0, location_count - 1)) for _ in range(count)]
    return StackTree([-1, *parents], [0, *locations], stack_count=count, max_nodes=max_nodes)


@st.composite
def partitions(draw: st.DrawFn, partition_id: int) -> SymbolPartition:
    strings = [b"", *draw(st.lists(st.sampled_from([b"a", b"b", b"c", b"d" * 300, b""]), max_size=6))]
    refs = st.integers(0, len(strings) - 1)
    mappings = draw(st.lists(st.builds(Mapping, refs, refs, INT32, UINT64, UINT64, UINT64), min_size=1, max_size=3))
    functions = draw(st.lists(st.builds(Function, refs, refs, refs, INT32), max_size=5))
    lines: st.SearchStrategy[Any] = st.just(())
    if functions:
        lines = st.lists(st.tuples(st.integers(0, len(functions) - 1), INT32), max_size=3).map(tuple)
    location = st.builds(Location, st.integers(0, len(mappings) - 1), UINT64, lines, st.booleans())
    locations = draw(st.lists(location, min_size=1, max_size=6))
    max_nodes = draw(st.sampled_from([11, 0xFFFFFFFF]))
    count = draw(st.integers(1, 3)) if max_nodes == 11 else 1
    made = [draw(trees(len(locations), max_nodes)) for _ in range(count)]
    return SymbolPartition(partition_id, strings, mappings, functions, locations, made)


def stack_ids(partition: SymbolPartition) -> st.SearchStrategy[int]:
    ids = [
        number * tree.max_nodes + node
        for number, tree in enumerate(partition.trees)
        for node in range(len(tree.parents))
    ]
    return st.sampled_from(ids)


@st.composite
def rows(draw: st.DrawFn, made: Sequence[SymbolPartition]) -> dict[str, Any]:
    partition = draw(st.sampled_from(made))
    sample = st.fixed_dictionaries(
        {
            "StacktraceID": stack_ids(partition),
            "Value": st.integers(1, 1 << 40),
            "Labels": st.just([]),
            "SpanID": st.none() | st.sampled_from([0, 7, (1 << 64) - 1]),
            "TraceID": st.none() | st.binary(min_size=16, max_size=16),
        }
    )
    samples = draw(st.lists(sample, max_size=6))
    text = st.text(max_size=3)
    return {
        "ID": draw(st.sampled_from([bytes(16), b"0123456789abcdef", b"\xff" * 16])),
        "SeriesIndex": draw(st.integers(0, len(LABELS) - 1)),
        "StacktracePartition": partition.id,
        "TotalValue": sum(sample["Value"] for sample in samples),
        "Samples": samples,
        "DropFrames": draw(MAYBE),
        "KeepFrames": draw(MAYBE),
        "TimeNanos": TIME_NS + draw(st.integers(0, 3)),
        "DurationNanos": draw(MAYBE),
        "Period": draw(MAYBE),
        "Comments": draw(st.lists(st.integers(-9, 9), max_size=2)),
        "DefaultSampleType": draw(MAYBE),
        "Annotations": [{"Key": k, "Value": v} for k, v in draw(st.lists(st.tuples(text, text), max_size=2))],
    }


@st.composite
def datasets(draw: st.DrawFn) -> Sections:
    made = [draw(partitions(number)) for number in (0, 1 << 63)[: draw(st.integers(1, 2))]]
    table_rows = sorted(draw(st.lists(rows(made), max_size=8)), key=lambda r: (r["SeriesIndex"], r["TimeNanos"]))
    cut = draw(st.integers(0, len(table_rows)))
    return sections_of([table_rows[:cut], table_rows[cut:]], made)


def indexed_series() -> list[IndexedSeries]:
    return [IndexedSeries(fingerprint(labels), labels, TIME_NS, TIME_NS + 3, n) for n, labels in enumerate(LABELS)]


def sections_of(row_groups: Sequence[Sequence[dict[str, Any]]], made: Sequence[SymbolPartition]) -> Sections:
    series = indexed_series()
    return Sections(table(row_groups), encode_series_index(series), encode_symbols(made), tuple(series))


def merged_by(module: Any, sources: Sequence[Sections], selection: Any, folder: Path) -> MergedDataset:
    opened = [sections.source(f"object {number}") for number, sections in enumerate(sources)]
    result: MergedDataset = module.merge_rows(
        opened, selection=selection, scratch=Scratch(folder), cancelled=lambda: False
    )
    return result


def assert_equal_merges(sources: Sequence[Sections], folder: Path, selection: Any = None) -> MergedDataset:
    """Merge with both; all bytes and all figures must agree."""
    one, other = (merged_by(module, sources, selection, folder) for module in (compiled, twin))
    for found, expected in zip(one.sections, other.sections, strict=True):
        assert b"".join(found.chunks()) == b"".join(expected.chunks())
    assert replace(one, sections=()) == replace(other, sections=())  # type: ignore[arg-type]
    return one


@pytest.mark.slow
@given(st.lists(datasets(), min_size=1, max_size=4), st.data())
@settings(max_examples=60, deadline=None)
def test_any_datasets_merge_to_the_bytes_of_the_twin(
    tmp_path_factory: pytest.TempPathFactory, sources: list[Sections], data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    assert_equal_merges(sources, folder)
    kept = st.sets(st.integers(0, len(LABELS)))
    assert_equal_merges(sources, folder, [data.draw(kept) for _ in sources])


def test_many_ids_of_one_key_are_distinguished(tmp_path: Path) -> None:
    sources = [make_sections([row(id=(7 * n + first) % 40) for n in range(60)]) for first in (0, 3, 90)]
    merged = assert_equal_merges(sources, tmp_path)
    assert merged.row_count == 40


@pytest.mark.slow
def test_a_duplicate_at_the_end_of_a_row_group_is_dropped_once(tmp_path: Path) -> None:
    """The row that does not fit any more must not count as its own duplicate."""
    many = [row(id=n, time_ns=TIME_NS + n // 20) for n in range(ROW_GROUP_ROWS + 15)]
    merged = assert_equal_merges([make_sections(many), make_sections(many[-40:])], tmp_path)
    assert (merged.row_count, merged.rows_dropped) == (ROW_GROUP_ROWS + 15, 40)


def labelled(entry: dict[str, Any]) -> dict[str, Any]:
    (sample,) = entry["Samples"]
    return {**entry, "Samples": [{**sample, "Labels": [{"Key": 1, "Str": None, "Num": 2, "NumUnit": None}]}]}


def test_sample_labels_are_kept_although_only_the_twin_holds_them(tmp_path: Path) -> None:
    good = make_sections([row(id=1)])
    first, second = table_row(row(id=1), 0, [1]), labelled(table_row(row(id=2, time_ns=TIME_NS + 1), 0, [1]))
    sources = [good, replace(good, profiles=table([[first], [second]]))]
    merged = assert_equal_merges(sources, tmp_path)
    found = pq.read_table(io.BytesIO(b"".join(merged.sections[0].chunks()))).column("Samples").to_pylist()
    assert [len(samples[0]["Labels"]) for samples in found] == [0, 1]


def test_pyarrow_takes_over_in_the_middle_of_a_table(tmp_path: Path) -> None:
    """An encoding that the page decoder does not know turns up in the second row group."""
    plain = [table_row(row(id=n, time_ns=TIME_NS + n), 0, [1]) for n in range(3)]
    noted = [table_row(row(id=n, time_ns=TIME_NS + n, annotations=(("k", "v"),)), 0, [1]) for n in range(3, 6)]
    out = io.BytesIO()
    encoding = {"Annotations.list.element.Key": "DELTA_BYTE_ARRAY"}
    with pq.ParquetWriter(out, SCHEMA, compression="NONE", use_dictionary=False, column_encoding=encoding) as writer:
        for rows_of_group in (plain, noted):
            writer.write_batch(batch(rows_of_group))
    batches = pages.read_batches(out.getvalue())
    assert batches is not None
    assert [found is None for found in batches] == [False, True]
    good = make_sections([row(("other",), id=9)])
    merged = assert_equal_merges([replace(make_sections([row()]), profiles=out.getvalue()), good], tmp_path)
    assert merged.row_count == 7


def test_annotations_survive_the_row_groups_they_came_from(tmp_path: Path) -> None:
    """The output's row group still points to texts when its sources have moved on; streaming frees their bytes."""
    count = 9000
    texts = [f"{n:0600d}" for n in range(count)]
    groups = [
        [
            table_row(row(id=n, time_ns=TIME_NS + n, annotations=((texts[n], "v"),)), 0, [1])
            for n in range(start, start + 1000)
        ]
        for start in range(0, count, 1000)
    ]
    large = replace(make_sections([row()]), profiles=table(groups))
    assert len(large.profiles) > STREAMED_PROFILES_BYTES
    merged = merged_by(compiled, [large], None, tmp_path)
    found = pq.read_table(io.BytesIO(b"".join(merged.sections[0].chunks())), columns=["Annotations"])
    assert [keys[0]["Key"] for keys in found.column(0).to_pylist()] == texts


def test_a_footer_that_ends_pyarrow_is_refused(tmp_path: Path) -> None:
    good = make_sections([row()])
    path = good.profiles.rindex(b"\x0cStacktraceID", 0, len(good.profiles) - 8) + 13
    damaged = good.profiles[: path + 1] + b"\x5a" + good.profiles[path + 2 :]
    with pytest.raises(BadObject, match="codec"):
        merged_by(compiled, [replace(good, profiles=damaged)], None, tmp_path)
