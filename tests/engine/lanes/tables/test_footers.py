"""Footers: the facts of a sound one, and that no bytes pass for one that contradicts the file."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.core.errors import BadObject, LimitExceeded, Truncated, UnknownFormat
from engine.formats.parquet.footers import parse_footer
from engine.lanes.tables.plain.facts import read_facts
from engine.storage import ObjectStore, open_store

TABLE = pa.table(
    {
        "at": pa.array([5_999_999, -1, None], pa.timestamp("us", "UTC")),
        "day": pa.array([2, 1, 1], pa.date32()),
        "count": pa.array([3, 1, 2], pa.int64()),
        "unsigned": pa.array([2**32 - 1, 1, 2], pa.uint32()),
        "tags": [["a"], [], None],
    }
)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


def written(table: pa.Table = TABLE, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("options", [{}, {"write_statistics": False}, {"row_group_size": 1}])
@pytest.mark.parametrize(
    ("column", "unit", "expected"),
    [
        ("at", "", (-1, 5999, 1)),
        ("day", "", (86_400_000, 2 * 86_400_000, 0)),
        ("count", "s", (1000, 3000, 0)),
        ("unsigned", "us", (0, 4_294_967, 0)),
    ],
)
def test_times_are_bounded_with_and_without_statistics(
    store: ObjectStore, options: dict[str, Any], column: str, unit: str, expected: tuple[int, int, int]
) -> None:
    store.put("a.parquet", data := written(**options))
    facts = read_facts(store, "a.parquet", time_column=column, time_unit=unit)
    assert (facts.min_time_ms, facts.max_time_ms, facts.time_nulls) == expected
    assert (facts.rows, facts.size, facts.schema) == (3, len(data), TABLE.schema)


def test_old_timestamps_are_instants_in_microseconds(store: ObjectStore) -> None:
    store.put("a.parquet", written(use_deprecated_int96_timestamps=True))
    facts = read_facts(store, "a.parquet", time_column="at")
    assert facts.schema.field("at").type == pa.timestamp("us", "UTC")
    assert (facts.min_time_ms, facts.max_time_ms, facts.time_nulls) == (-1, 5999, 1)


def test_an_order_is_what_all_row_groups_have_in_common(store: ObjectStore) -> None:
    columns = [pq.SortingColumn(1), pq.SortingColumn(2), pq.SortingColumn(0, descending=True)]
    store.put("a.parquet", written(sorting_columns=columns, row_group_size=2))
    facts = read_facts(store, "a.parquet", time_column="at")
    assert (facts.sorted_by, facts.row_groups) == (("day", "count"), 2)


def test_a_long_footer_takes_one_request_more(store: ObjectStore) -> None:
    wide = pa.table({f"a_column_with_a_long_name_{number}": [1] for number in range(1000)})
    store.put("a.parquet", data := written(wide))
    facts = read_facts(store, "a.parquet", time_column="a_column_with_a_long_name_7", time_unit="ms", size=len(data))
    assert (facts.min_time_ms, len(facts.schema)) == (1, 1000)
    assert store.usage.requests()["get_range"] == 3


def test_an_empty_file_has_no_times(store: ObjectStore) -> None:
    store.put("a.parquet", written(TABLE.slice(0, 0)))
    facts = read_facts(store, "a.parquet", time_column="at")
    assert (facts.rows, facts.min_time_ms, facts.max_time_ms) == (0, None, None)


@pytest.mark.parametrize(
    ("column", "unit", "reason"),
    [("when", "", "no time column"), ("count", "", "unit"), ("tags", "", "list"), ("tags", "s", "list")],
)
def test_a_time_column_without_times_is_refused(store: ObjectStore, column: str, unit: str, reason: str) -> None:
    store.put("a.parquet", written())
    with pytest.raises(UnknownFormat, match=reason) as caught:
        read_facts(store, "a.parquet", time_column=column, time_unit=unit)
    assert caught.value.object_name == "a.parquet"


@pytest.mark.parametrize("data", [b"root:secret-hash", b"PAR1" + bytes(20) + b"hash"])
def test_an_error_quotes_no_bytes_of_the_file(store: ObjectStore, data: bytes) -> None:
    """It is returned to the caller that registers the file."""
    store.put("a.parquet", data)
    with pytest.raises(UnknownFormat) as caught:
        read_facts(store, "a.parquet", time_column="at")
    assert "hash" not in str(caught.value)
    assert "root" not in str(caught.value)


def test_an_error_of_the_time_column_quotes_no_text_of_the_library(store: ObjectStore) -> None:
    data = bytearray(written(write_statistics=False, use_dictionary=False, compression="NONE"))
    data[4:60] = b"\xff" * 56
    store.put("a.parquet", bytes(data))
    with pytest.raises(BadObject, match=r"^a.parquet: column at: it cannot be read \(\w+\)$"):
        read_facts(store, "a.parquet", time_column="at")


def _with_length(data: bytes, length: int) -> bytes:
    return data[:-8] + length.to_bytes(4, "little") + data[-4:]


@pytest.mark.parametrize(
    ("damage", "error", "offset"),
    [
        (lambda data: b"", Truncated, 0),
        (lambda data: data[:11], Truncated, 0),
        (lambda data: data[:-1], UnknownFormat, -5),
        (lambda data: data[: len(data) // 2], UnknownFormat, None),
        (lambda data: data[:-4] + b"PARE", UnknownFormat, -4),
        (lambda data: b"ORC1" + data[4:], UnknownFormat, 0),
        (lambda data: _with_length(data, 0), Truncated, -8),
        (lambda data: _with_length(data, len(data)), Truncated, -8),
        (lambda data: _with_length(data, 20), BadObject, None),
        (lambda data: data[4:], BadObject, 0),
        (lambda data: b"PAR1" + data[-1000:], BadObject, None),
    ],
)
def test_a_file_cut_or_changed_at_its_ends_is_refused_with_the_place(
    store: ObjectStore, damage: Callable[[bytes], bytes], error: type[BadObject], offset: int | None
) -> None:
    data = damage(written())
    store.put("a.parquet", data)
    with pytest.raises(error) as caught:
        read_facts(store, "a.parquet", time_column="at")
    assert caught.value.object_name == "a.parquet"
    assert offset is None or caught.value.offset == (offset if offset >= 0 else len(written()) + offset)


def test_a_size_that_is_not_the_objects_is_refused(store: ObjectStore) -> None:
    store.put("a.parquet", data := written())
    with pytest.raises(Truncated):
        read_facts(store, "a.parquet", time_column="at", size=len(data) + 1)


def test_a_footer_above_the_size_limit_is_refused() -> None:
    tail = bytes(8) + (1 << 30).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(LimitExceeded):
        parse_footer(b"PAR1", tail, 1 << 31)


def test_no_change_of_the_footers_bytes_ends_the_process(store: ObjectStore) -> None:
    data, chance = written(row_group_size=2, store_schema=False), random.Random(7)
    length = int.from_bytes(data[-8:-4], "little")
    refused = 0
    for _ in range(400):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            changed[-8 - chance.randint(1, length)] = chance.randrange(256)
        try:
            facts = parse_footer(bytes(changed[:4]), bytes(changed), len(changed))
            assert all(4 <= pages.start <= facts.start for group in facts.groups for pages in group.columns)
        except BadObject:
            refused += 1
    assert refused > 100
