"""Profile tables that other writers could have made, through the merge of both implementations."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.core.errors import BadObject
from engine.formats.profile_block.merge_model import Scratch
from engine.formats.profile_block.table.profile_table import SCHEMA, ProfileTableReader
from tests.engine.conftest import Implementation
from tests.engine.formats.profile_block.factories import (
    TIME_NS,
    ProfileRow,
    Sample,
    Sections,
    batch,
    make_sections,
    row,
    series_labels,
    table_row,
)

SAMPLES = (Sample(("leaf", "main"), 5, 9, bytes(range(16))), Sample(("main",), 6), Sample(("leaf", "main"), 1 << 40))
ENTRY = ProfileRow(series_labels(), SAMPLES, id=b"i" * 16, annotations=(("key", "value"),))
GOOD = make_sections([ENTRY, row(("main",), id=2, time_ns=TIME_NS + 1)])


def good_table() -> pa.Table:
    return pa.Table.from_batches(ProfileTableReader(GOOD.profiles).batches(), SCHEMA)


def written(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **{"compression": "NONE", **options})
    return out.getvalue()


def merged_table(implementation: Implementation, profiles: bytes, scratch: Scratch) -> pa.Table:
    sources = [sections.source(f"object {n}") for n, sections in enumerate((replace(GOOD, profiles=profiles), OTHER))]
    merged = implementation.merge_rows(sources, selection=None, scratch=scratch, cancelled=lambda: False)
    data = b"".join(merged.sections[0].chunks())
    return pa.Table.from_batches(ProfileTableReader(data).batches(), SCHEMA)


OTHER: Sections = make_sections([row(("other",), id=3)])

WRITERS: dict[str, dict[str, Any]] = {
    "dictionaries everywhere": {"use_dictionary": True},
    "plain everywhere": {"use_dictionary": False},
    "pages of version 1": {"data_page_version": "1.0", "use_dictionary": False},
    "pages of version 1 with dictionaries": {"data_page_version": "1.0", "use_dictionary": True},
    "tiny pages": {"data_page_size": 16, "use_dictionary": False, "write_batch_size": 1},
    "a row group per row": {"row_group_size": 1},
    "page checksums": {"write_page_checksum": True},
    "the arrow schema beside it": {"store_schema": True},
}


@pytest.mark.parametrize("writer", WRITERS)
def test_the_encoding_of_a_table_does_not_matter(implementation: Implementation, scratch: Scratch, writer: str) -> None:
    expected = merged_table(implementation, GOOD.profiles, scratch)
    assert expected.num_rows == 3
    assert merged_table(implementation, written(good_table(), **WRITERS[writer]), scratch).equals(expected)


def test_columns_of_later_writers_are_ignored(implementation: Implementation, scratch: Scratch) -> None:
    expected = merged_table(implementation, GOOD.profiles, scratch)
    extended = good_table().append_column("Later", pa.array(["x", "y"]))
    assert merged_table(implementation, written(extended), scratch).equals(expected)


def test_columns_of_another_order_are_found_by_name(implementation: Implementation, scratch: Scratch) -> None:
    expected = merged_table(implementation, GOOD.profiles, scratch)
    reordered = good_table().select(SCHEMA.names[::-1])
    assert merged_table(implementation, written(reordered), scratch).equals(expected)


@pytest.mark.parametrize("missing", ["Annotations", "Period", "DropFrames", "DefaultSampleType"])
def test_a_column_that_is_not_there_is_null_or_empty(
    implementation: Implementation, scratch: Scratch, missing: str
) -> None:
    rows = merged_table(implementation, written(good_table().drop_columns([missing])), scratch)
    assert set(map(str, rows.column(missing).to_pylist())) <= {"None", "[]"}


def with_total(value: int) -> pa.Table:
    return pa.Table.from_batches([batch([table_row(ENTRY, 0, [2, 1, 2]) | {"TotalValue": value}])], SCHEMA)


BAD_TABLES: dict[str, Callable[[], bytes]] = {
    "compressed": lambda: written(good_table(), compression="ZSTD"),
    "a wrong total": lambda: written(with_total(10)),
    "no stack ids": lambda: written(good_table().drop_columns(["Samples"])),
    "no series": lambda: written(good_table().drop_columns(["SeriesIndex"])),
    "text": lambda: b"no Parquet, but as long as a footer would be at least",
    "empty": lambda: b"",
    "a footer longer than the file": lambda: GOOD.profiles[:-8] + b"\xff\xff\xff\x7fPAR1",
    "an encrypted footer": lambda: GOOD.profiles[:-4] + b"PARE",
}


@pytest.mark.parametrize("what", BAD_TABLES)
def test_a_table_that_cannot_be_trusted_is_refused(implementation: Implementation, scratch: Scratch, what: str) -> None:
    with pytest.raises(BadObject) as caught:
        merged_table(implementation, BAD_TABLES[what](), scratch)
    assert (caught.value.object_name, caught.value.section) == ("object 0", "profiles")
