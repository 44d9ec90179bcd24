"""The look at a Parquet footer before pyarrow sees it: damage is a typed error, never the end of the process."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.core.errors import BadObject, UnknownFormat
from engine.formats.profile_block.table.profile_table import ProfileTableReader
from engine.formats.profile_block.table.table_footer import check_table_footer
from tests.engine.conftest import ForeignBlocks
from tests.engine.formats.profile_block.damage import patched, truncations
from tests.engine.formats.profile_block.factories import row, table, table_row

ROW = table_row(row(), 0, [1])


def check(data: bytes) -> None:
    check_table_footer(lambda offset, length: data[offset : offset + length], len(data))


def footer_start(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def test_the_tables_of_the_project_pass() -> None:
    for rows in ([], [ROW], [ROW] * 20):
        check(table([rows, rows]))


@pytest.mark.foreign_data
def test_real_tables_pass(foreign_blocks: ForeignBlocks) -> None:
    for block in foreign_blocks.all():
        for section in block.sections(0):
            check(section)


@pytest.mark.parametrize("codec", ["snappy", "zstd", "NONE"])
def test_tables_of_any_kind_pass(codec: Any) -> None:
    columns = {"a": [1, None], "b": [["x"], []], "c": [{"d": 1.5}, {"d": 2.5}], "e": [True, False]}
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, compression=codec)
    check(out.getvalue())


@pytest.mark.slow
@pytest.mark.parametrize("change", [1, 2, 4, 0x10, 0x5A, 0x80, 0xFF])
def test_damage_is_a_typed_error_or_is_passed_to_pyarrow(change: int) -> None:
    data = table([[ROW]])
    refused = 0
    for offset in range(footer_start(data), len(data), 3):
        try:
            check(damaged(data, offset, change))
        except BadObject as error:
            assert error.section == "profiles"  # noqa: PT017
            refused += 1
    assert refused > 20


def test_an_unknown_codec_is_refused() -> None:
    """pyarrow's ``column.compression`` would end the process."""
    data = table([[ROW]])
    path = data.rindex(b"\x0cStacktraceID", 0, len(data) - 8) + 13
    assert data[path : path + 2] == b"\x15\x00"
    with pytest.raises(UnknownFormat, match="codec"):
        check(patched(data, path + 1, b"\x5a"))


def test_a_histogram_that_does_not_match_the_schema_is_refused() -> None:
    """pyarrow's ``row_group.column`` would end the process."""
    data = table([[ROW]])
    list_element = data.index(b"\x18\x04list", footer_start(data))
    assert data[list_element - 2 : list_element] == b"5\x04"
    with pytest.raises(BadObject, match="histogram"):
        check(patched(data, list_element - 1, b"\x02"))


def test_lost_rows_are_noticed() -> None:
    data = table([[ROW], [ROW]])
    row_count = data.index(b"\x16\x04\x19", footer_start(data))
    with pytest.raises(BadObject, match="rows"):
        check(patched(data, row_count + 1, b"\x06"))


def test_every_truncation_is_refused() -> None:
    for cut in truncations(table([[ROW]]), 13):
        with pytest.raises(BadObject):
            check(cut)


def test_deep_nesting_is_refused() -> None:
    footer = b"\x1c" * 100_000
    data = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(BadObject, match="nested"):
        check(data)


@pytest.mark.slow
@pytest.mark.parametrize("change", [0x10, 0xFF])
def test_no_damaged_footer_ends_the_process_of_a_reader(change: int) -> None:
    """Without the look before, pyarrow ends the process on some of these: this test would not come back."""
    data = table([[ROW] * 3])
    read = refused = 0
    for offset in range(footer_start(data), len(data)):
        try:
            read += sum(batch.num_rows for batch in ProfileTableReader(damaged(data, offset, change)).batches()) == 3
        except BadObject:
            refused += 1
    assert refused > read


def damaged(data: bytes, offset: int, change: int) -> bytes:
    return patched(data, offset, bytes([data[offset] ^ change]))
