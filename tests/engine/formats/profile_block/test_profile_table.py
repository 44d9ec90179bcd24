"""The profile table: real files of several ages, streaming, and tables that are not what they say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject, LimitExceeded, UnknownFormat
from engine.formats.profile_block.merge_model import READ_BATCH_BYTES
from engine.formats.profile_block.table.profile_table import (
    SAMPLES,
    SCHEMA,
    ProfileTableReader,
    ProfileTableWriter,
    SectionFile,
)
from tests.engine.conftest import ForeignBlocks
from tests.engine.formats.profile_block.damage import flips, truncations
from tests.engine.formats.profile_block.factories import ProfileRow as Row
from tests.engine.formats.profile_block.factories import Sample, batch, series_labels, table, table_row

KNOWN = {
    "01JKT3DJRE": (116, 6528, 23311594886010),
    "01JKT2XEGT": (240, 38400, 349200034920),
    "01JKT42699": (6, 960, 8730000873),
    "01J2VJQPYD": (1, 56, 93),
    "01J2VJQRTM": (1, 58, 125),
}


def make_row(position: int = 0, values: tuple[int, ...] = (3, 4), **fields: Any) -> dict[str, Any]:
    samples = tuple(Sample(("main",), value, span_id=value, trace_id=bytes(16)) for value in values)
    row = Row(series_labels(), samples, time_ns=1_700_000_000_123_456_789 + position, id=position.to_bytes(16, "big"))
    return {**table_row(row, position, range(1, len(values) + 1)), **fields}


def read(data: bytes | SectionFile) -> pa.Table:
    return pa.Table.from_batches(list(ProfileTableReader(data).batches()), SCHEMA)


def rewritten(rows: list[dict[str, Any]], change: Any, **options: Any) -> bytes:
    """Write rows as another writer would: with other columns or options."""
    out = io.BytesIO()
    pq.write_table(change(pa.Table.from_batches([batch(rows)])), out, **options)
    return out.getvalue()


@pytest.mark.foreign_data
@pytest.mark.parametrize("name", KNOWN)
def test_real_tables_hold_what_they_are_known_to(foreign_blocks: ForeignBlocks, name: str) -> None:
    rows, samples, total = KNOWN[name]
    (section,) = foreign_blocks[name].sections(0)
    reader = ProfileTableReader(section)
    table = read(section)
    assert (reader.row_count, reader.sample_count) == (rows, samples) == (table.num_rows, samples)
    values = table.column("Samples").combine_chunks().values.field("Value")
    assert int(values.to_numpy().sum()) == total == sum(table.column("TotalValue").to_pylist())


@pytest.mark.foreign_data
def test_real_tables_are_written_and_read_back_equal(foreign_blocks: ForeignBlocks) -> None:
    for block in foreign_blocks.all():
        for section in block.sections(0):
            out = io.BytesIO()
            writer = ProfileTableWriter(out)
            for part in ProfileTableReader(section).batches():
                writer.write(part)
            writer.close()
            assert read(out.getvalue()).equals(read(section))


@pytest.mark.foreign_data
def test_our_tables_have_the_columns_of_real_ones(foreign_blocks: ForeignBlocks) -> None:
    (section,) = foreign_blocks["01JKT3DJRE"].sections(0)
    real = pq.ParquetFile(pa.BufferReader(section)).schema
    ours = pq.ParquetFile(pa.BufferReader(table([[make_row()]]))).schema
    columns = [
        [(c.path, c.physical_type, c.max_definition_level, c.max_repetition_level) for c in schema]
        for schema in ([real.column(i) for i in range(len(real))], [ours.column(i) for i in range(len(ours))])
    ]
    assert columns[0] == columns[1]


@pytest.mark.foreign_data
def test_every_truncation_of_a_real_table_is_refused(foreign_blocks: ForeignBlocks) -> None:
    (section,) = foreign_blocks["01J2VJQPYD"].sections(0)
    for data in truncations(section, 97):
        with pytest.raises(BadObject):
            read(data)


@pytest.mark.slow
@pytest.mark.foreign_data
def test_flipped_bytes_of_a_real_table_do_no_worse_than_a_typed_error(foreign_blocks: ForeignBlocks) -> None:
    """Such tables carry no page checksums; what the values' sums do not show stays unseen, but nothing crashes."""
    (section,) = foreign_blocks["01J2VJQRTM"].sections(0)
    refused = 0
    for _, data in flips(section, 11):
        try:
            read(data)
        except BadObject:
            refused += 1
    assert refused > 100


def test_row_groups_are_those_of_the_batches() -> None:
    data = table([[make_row(0), make_row(1)], [], [make_row(2)]])
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [2, 1]
    assert read(data).num_rows == 3


def test_an_empty_table_has_no_rows() -> None:
    assert read(table([])).num_rows == 0


def test_times_keep_their_nanoseconds() -> None:
    times = read(table([[make_row(1)]])).column("TimeNanos").cast(pa.int64())
    assert times.to_pylist() == [1_700_000_000_123_456_790]


def test_columns_that_old_writers_leave_out_are_null_or_empty() -> None:
    def without_annotations_and_traces(table: pa.Table) -> pa.Table:
        samples = table.column("Samples").combine_chunks()
        fields = [field for field in samples.type.value_type if field.name != "TraceID"]
        kept = pa.StructArray.from_arrays([samples.values.field(field.name) for field in fields], fields=fields)
        kind = pa.list_(pa.field("element", kept.type, nullable=False))
        column = pa.ListArray.from_arrays(samples.offsets, kept, type=kind)
        field = pa.field("Samples", kind, nullable=False)
        return table.set_column(SAMPLES, field, column).drop_columns(["Annotations", "Period"])

    rows = read(rewritten([make_row()], without_annotations_and_traces, compression="NONE")).to_pylist()
    assert rows[0]["Annotations"] == []
    assert rows[0]["Period"] is None
    assert [sample["TraceID"] for sample in rows[0]["Samples"]] == [None, None]
    assert [sample["SpanID"] for sample in rows[0]["Samples"]] == [3, 4]


@pytest.mark.parametrize("column", ["ID", "SeriesIndex", "StacktracePartition", "TotalValue", "Samples", "TimeNanos"])
def test_a_table_without_a_column_that_matters_is_refused(column: str) -> None:
    with pytest.raises(UnknownFormat, match=column):
        read(rewritten([make_row()], lambda table: table.drop_columns([column]), compression="NONE"))


def test_a_column_of_another_type_is_refused() -> None:
    def as_text(table: pa.Table) -> pa.Table:
        field = pa.field("SeriesIndex", pa.string(), nullable=False)
        return table.set_column(1, field, pa.array(["x"], pa.string()))

    with pytest.raises(UnknownFormat, match="SeriesIndex"):
        read(rewritten([make_row()], as_text, compression="NONE"))


def test_nulls_where_values_are_required_are_refused() -> None:
    def with_null(table: pa.Table) -> pa.Table:
        return table.set_column(1, pa.field("SeriesIndex", pa.uint32()), pa.array([None], pa.uint32()))

    with pytest.raises(BadObject, match="null"):
        read(rewritten([make_row()], with_null, compression="NONE"))


def test_compressed_columns_are_refused_because_they_may_be_bombs() -> None:
    with pytest.raises(UnknownFormat, match="compressed"):
        read(rewritten([make_row()], lambda table: table, compression="ZSTD"))


@pytest.mark.slow
def test_more_values_than_the_bytes_can_hold_are_refused() -> None:
    rows = [make_row(0, values=(1,) * 50_000)]
    data = rewritten(rows, lambda table: table, compression="NONE", use_dictionary=True)
    with pytest.raises(LimitExceeded):
        read(rewritten([make_row(0, values=(1,) * 50_000) | _one_stack(50_000)], lambda t: t, compression="NONE"))
    assert read(data).num_rows == 1


def _one_stack(count: int) -> dict[str, Any]:
    return {"Samples": [{"StacktraceID": 1, "Value": 1, "Labels": []}] * count}


def test_values_that_do_not_sum_up_are_refused() -> None:
    with pytest.raises(BadObject, match="TotalValue"):
        read(table([[make_row(0), make_row(1, TotalValue=8)]]))


def test_sums_wrap_like_the_stored_number() -> None:
    assert read(table([[make_row(0, values=((1 << 63) - 1, 1), TotalValue=1 << 63)]])).num_rows == 1


def test_every_truncation_is_refused() -> None:
    for data in truncations(table([[make_row()]]), 7):
        with pytest.raises(BadObject):
            read(data)


def test_a_flipped_byte_in_a_page_is_refused() -> None:
    """Our own tables have page checksums, so that damage in a page never passes."""
    data = table([[make_row(position) for position in range(20)]])
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    for number in range(metadata.num_columns):
        column = metadata.column(number)
        last = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1
        with pytest.raises(BadObject):
            read(data[:last] + bytes([data[last] ^ 1]) + data[last + 1 :])


@given(st.binary(max_size=300))
def test_no_bytes_do_worse_than_a_typed_error(data: bytes) -> None:
    for candidate in (data, b"PAR1" + data + b"PAR1"):
        try:
            read(candidate)
        except BadObject as error:
            assert error.section == "profiles"  # noqa: PT017


def test_a_section_is_streamed_one_read_per_row_group() -> None:
    data = table([[make_row(group * 10 + position) for position in range(10)] for group in range(3)])
    reads: list[tuple[int, int]] = []

    def read_range(offset: int, length: int) -> bytes:
        reads.append((offset, length))
        return data[offset - 1000 : offset - 1000 + length]

    reader = ProfileTableReader(SectionFile(read_range, 1000, len(data)))
    reads.clear()
    assert pa.Table.from_batches(reader.batches()).equals(read(data))
    assert len(reads) == 3
    assert sum(length for _, length in reads) < len(data)


@pytest.mark.slow
def test_large_row_groups_come_in_batches_of_bounded_size() -> None:
    samples = 2000
    rows = [make_row(position, values=tuple(range(1, samples + 1))) for position in range(100)]
    batches = list(ProfileTableReader(table([rows])).batches())
    assert len(batches) > 2
    assert max(part.num_rows for part in batches) * samples * 24 <= READ_BATCH_BYTES
    assert sum(part.num_rows for part in batches) == 100


def test_stack_ids_come_without_the_rest() -> None:
    (ids,) = ProfileTableReader(table([[make_row(0), make_row(1, values=(5,))]])).stack_ids()
    assert ids.series.tolist() == [0, 1]
    assert ids.partitions.tolist() == [0, 0]
    assert np.diff(ids.offsets).tolist() == [2, 1]
    assert ids.stack_ids.tolist() == [1, 2, 1]


@given(
    st.lists(
        st.tuples(
            st.integers(0, (1 << 32) - 1),
            st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.integers(1, (1 << 40))), max_size=5),
            st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=2),
        ),
        max_size=8,
    )
)
@settings(max_examples=40)
def test_what_is_written_is_read(rows: list[Any]) -> None:
    written = [
        {
            **make_row(position, values=tuple(value for _, value in samples)),
            "SeriesIndex": series,
            "Samples": [{"StacktraceID": stack, "Value": value, "Labels": []} for stack, value in samples],
            "Annotations": [{"Key": key, "Value": value} for key, value in annotations],
        }
        for position, (series, samples, annotations) in enumerate(rows)
    ]
    expected = pa.Table.from_batches([batch(written)], SCHEMA)
    assert read(table([written])).equals(expected)


def test_a_file_given_by_path_is_no_section(tmp_path: Path) -> None:
    with pytest.raises(BadObject):
        read(str(tmp_path).encode())
