"""The page decoder (_profile_pages, _page_reader, _parquet_footer) against its oracle, pyarrow."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import Truncated
from engine.formats.profile_block.table import _profile_pages as pages
from engine.formats.profile_block.table.profile_table import SCHEMA, ProfileTableReader
from tests.engine.conftest import ForeignBlocks
from tests.engine.formats.profile_block.damage import flips, truncations
from tests.engine.formats.profile_block.factories import TIME_NS, batch, table

UINT64 = st.integers(0, (1 << 64) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
MAYBE = st.none() | INT64

samples = st.fixed_dictionaries(
    {
        "StacktraceID": st.one_of(st.integers(0, 40), UINT64),
        "Value": st.one_of(st.integers(1, 9), INT64),
        "Labels": st.just([]),
        "SpanID": st.none() | st.sampled_from([0, 7]) | UINT64,
        "TraceID": st.none() | st.sampled_from([bytes(16), b"0123456789abcdef"]),
    }
)
text = st.text(max_size=5)
table_rows = st.fixed_dictionaries(
    {
        "ID": st.binary(min_size=16, max_size=16),
        "SeriesIndex": st.integers(0, (1 << 32) - 1),
        "StacktracePartition": UINT64,
        "Samples": st.lists(samples, max_size=5),
        "DropFrames": MAYBE,
        "KeepFrames": MAYBE,
        "TimeNanos": st.integers(TIME_NS, TIME_NS + 10**12),
        "DurationNanos": MAYBE,
        "Period": MAYBE,
        "Comments": st.lists(INT64, max_size=2),
        "DefaultSampleType": MAYBE,
        "Annotations": st.lists(st.fixed_dictionaries({"Key": text, "Value": text}), max_size=2),
    }
).map(lambda row: row | {"TotalValue": sum(sample["Value"] for sample in row["Samples"]) % (1 << 64)})

INTEGERS = ["SeriesIndex", "TotalValue", "Samples.list.element.StacktraceID", "Comments.list.element", "Period"]
layouts = st.fixed_dictionaries(
    {
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "write_page_checksum": st.booleans(),
        "write_page_index": st.booleans(),
        "data_page_size": st.sampled_from([64, 1 << 20]),
        "write_batch_size": st.sampled_from([1, 3, 1024]),
        "use_dictionary": st.sampled_from([False, ["Samples.list.element.SpanID"], INTEGERS, ["ID", "TimeNanos"]]),
        "delta": st.sampled_from([[], INTEGERS]),
    }
)


def written(row_groups: list[list[dict[str, Any]]], layout: dict[str, Any]) -> bytes:
    """Write rows with pyarrow in a layout that the project's own writer does not use."""
    options = {"compression": "NONE", "store_schema": False, **layout}
    delta = [leaf for leaf in options.pop("delta", []) if leaf not in (options["use_dictionary"] or [])]
    if delta:
        options["column_encoding"] = dict.fromkeys(delta, "DELTA_BINARY_PACKED")
    out = io.BytesIO()
    with pq.ParquetWriter(out, SCHEMA, **options) as writer:
        for rows in row_groups:
            if rows:
                writer.write_batch(batch(rows))
    return out.getvalue()


def by_pyarrow(data: bytes) -> pa.Table:
    return pa.Table.from_batches(ProfileTableReader(data).batches(), SCHEMA)


def by_pages(data: bytes) -> pa.Table | None:
    """Return the whole table, None if any of it is left to pyarrow."""
    batches = pages.read_batches(data)
    if batches is None or None in batches:
        return None
    found = pa.Table.from_batches(batches, SCHEMA)
    found.validate(full=True)
    return found


@pytest.mark.slow
@given(st.lists(st.lists(table_rows, max_size=6), max_size=3), layouts)
@settings(max_examples=40)
def test_every_layout_is_read_as_pyarrow_reads_it(
    row_groups: list[list[dict[str, Any]]], layout: dict[str, Any]
) -> None:
    data = written(row_groups, layout)
    found = by_pages(data)
    assert found is not None
    assert found.equals(by_pyarrow(data))


@given(st.lists(table_rows, min_size=1, max_size=12))
@settings(max_examples=15)
def test_what_the_project_writes_needs_no_pyarrow_to_be_read(rows: list[dict[str, Any]]) -> None:
    data = table([rows, rows[:1]])
    found = by_pages(data)
    assert found is not None
    assert found.equals(by_pyarrow(data))


@pytest.mark.foreign_data
def test_every_real_table_is_read_as_pyarrow_reads_it(foreign_blocks: ForeignBlocks) -> None:
    tables = [section for block in foreign_blocks.all() for section in block.sections(0)]
    for data in tables:
        found = by_pages(data)
        assert found is not None
        assert found.equals(by_pyarrow(data))
    assert len(tables) == 9


def many_rows(count: int) -> list[dict[str, Any]]:
    numbers = np.random.default_rng(5).integers(1, 1 << 40, size=(count, 3)).tolist()
    return [
        {
            "ID": number.to_bytes(16, "big"),
            "SeriesIndex": number // 100,
            "StacktracePartition": 0,
            "TotalValue": sum(values),
            "Samples": [{"StacktraceID": i, "Value": value, "Labels": []} for i, value in enumerate(values)],
            "TimeNanos": TIME_NS + number,
            "Comments": [],
            "Annotations": [],
        }
        for number, values in enumerate(numbers)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_many_pages_and_full_blocks_are_put_together(version: str) -> None:
    layout = {"data_page_version": version, "data_page_size": 500, "use_dictionary": False, "delta": INTEGERS}
    data = written([many_rows(3000)], layout)
    found = by_pages(data)
    assert found is not None
    assert found.equals(by_pyarrow(data))


def test_missing_columns_are_null_or_empty() -> None:
    whole = batch(many_rows(3))
    kept = [name for name in SCHEMA.names if name not in ("Annotations", "Period", "Comments")]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_batches([whole.select(kept)]), out, compression="NONE", store_schema=False)
    found = by_pages(out.getvalue())
    assert found is not None
    assert found.equals(by_pyarrow(out.getvalue()))


def strange_tables() -> dict[str, bytes]:
    rows = many_rows(3)
    labelled = [row | {"Samples": [{**row["Samples"][0], "Labels": [{"Key": 1}]}], "TotalValue": 1} for row in rows]
    for row in labelled:
        row["TotalValue"] = row["Samples"][0]["Value"]
    plain = {"data_page_version": "2.0", "use_dictionary": False}
    return {
        "compressed": written([rows], plain | {"compression": "snappy"}),
        "with sample labels": written([labelled], plain),
        "of an encoding nobody expects": written(
            [rows], plain | {"column_encoding": {"TimeNanos": "BYTE_STREAM_SPLIT"}}
        ),
    }


@pytest.mark.parametrize("what", ["compressed", "with sample labels", "of an encoding nobody expects"])
def test_a_strange_table_is_left_to_pyarrow(what: str) -> None:
    assert by_pages(strange_tables()[what]) is None


def test_a_group_too_large_to_hold_is_left_to_pyarrow() -> None:
    rows = many_rows(1)
    rows[0]["Samples"] = [{"StacktraceID": 0, "Value": 1, "Labels": []}] * 720_000
    rows[0]["TotalValue"] = 720_000
    batches = pages.read_batches(table([rows, many_rows(2)]))
    assert batches is not None
    assert [found is None for found in batches] == [True, False]


def test_a_damaged_table_is_left_to_pyarrow_or_read_as_it_was() -> None:
    data = table([many_rows(4)])
    good = by_pages(data)
    left = 0
    for _, damaged in flips(data, 3):
        found = by_pages(damaged)
        left += found is None
        assert found is None or found.equals(good)
    assert left > len(data) // 8
    assert not any(by_pages(cut) for cut in truncations(data, 11))


def test_a_wrong_total_is_left_to_pyarrow() -> None:
    rows = many_rows(2)
    rows[1]["TotalValue"] += 1
    assert by_pages(table([rows])) is None


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b""])
def test_a_range_of_another_length_is_refused(change: Callable[[bytes], bytes]) -> None:
    """A store that gives fewer bytes than requested must not lead to bytes that are not there."""
    section = written([many_rows(40), many_rows(40)], {})
    for wrong in range(4):
        reads = 0

        def read(start: int, size: int) -> bytes:
            nonlocal reads
            reads += 1
            data = section[start : start + size]
            return change(data) if reads - 1 == wrong else data  # noqa: B023  (called within this turn only)

        with pytest.raises(Truncated, match="a read of"):
            pages.read_batches(read, len(section))
        assert reads == wrong + 1


def test_a_section_of_another_length_is_refused() -> None:
    section = written([many_rows(40)], {})
    for size in (len(section) - 1, len(section) + 1, len(section) + 100_000):
        with pytest.raises(Truncated, match="are expected"):
            pages.read_batches(section, size)
