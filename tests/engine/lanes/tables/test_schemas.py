"""Schemas that have grown apart become one that keeps every value; those that cannot are refused by column and file."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from engine.formats.parquet.errors import NotConserved, SchemaConflict
from engine.formats.parquet.schemas import cast_batch, unified_schema
from engine.lanes.tables.merge.conservation import Tally, check_conserved, exact_sum, summable

TS = pa.timestamp


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.uint32(), pa.uint32()),
        (pa.uint8(), pa.int8(), pa.int16()),
        (pa.uint32(), pa.int8(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int16(), pa.float32(), pa.float32()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int32(), pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.uint64(), pa.decimal128(5, 2), pa.decimal128(22, 2)),
        (pa.decimal128(10, 2), pa.decimal128(8, 4), pa.decimal128(12, 4)),
        (TS("ms"), TS("us"), TS("us")),
        (TS("ns", "UTC"), TS("us", "Europe/Paris"), TS("ns", "UTC")),
        (TS("ms", "Europe/Paris"), TS("us", "Europe/Paris"), TS("us", "Europe/Paris")),
        (pa.date32(), pa.date64(), pa.date64()),
        (pa.date32(), TS("us"), TS("us")),
        (pa.date64(), TS("s"), TS("ms")),
        (pa.time32("s"), pa.time64("us"), pa.time64("us")),
        (pa.duration("s"), pa.duration("ns"), pa.duration("ns")),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
        (pa.dictionary(pa.int8(), pa.int32()), pa.int64(), pa.int64()),
        (pa.binary(4), pa.binary(), pa.binary()),
        (pa.null(), pa.int8(), pa.int8()),
        (pa.list_(pa.int8()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int32())),
        (
            pa.struct([("a", pa.int8()), ("b", pa.string())]),
            pa.struct([("c", pa.int8()), ("a", pa.int16())]),
            pa.struct([("a", pa.int16()), ("b", pa.string()), ("c", pa.int8())]),
        ),
    ],
)
def test_types_are_widened_whichever_comes_first(
    first: pa.DataType, second: pa.DataType, expected: pa.DataType
) -> None:
    for one, other in ((first, second), (second, first)):
        schema = unified_schema([("1", pa.schema([("x", one)])), ("2", pa.schema([("x", other)]))])
        if pa.types.is_struct(expected):
            assert {field.name: field.type for field in schema.field("x").type} == {
                field.name: field.type for field in expected
            }
        else:
            assert schema.field("x").type == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.int64(), pa.string()),
        (pa.int64(), pa.float64()),
        (pa.uint64(), pa.int64()),
        (pa.int64(), pa.decimal128(38, 30)),
        (pa.decimal128(38, 0), pa.decimal128(38, 38)),
        (pa.float64(), pa.decimal128(9, 2)),
        (pa.bool_(), pa.int8()),
        (TS("us"), TS("us", "UTC")),
        (pa.date32(), TS("us", "UTC")),
        (pa.string(), pa.binary()),
        (pa.list_(pa.int8()), pa.int8()),
        (pa.list_(pa.int8()), pa.list_(pa.string())),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.string())])),
        (pa.timestamp("us"), pa.int64()),
    ],
)
def test_types_with_nothing_in_common_are_refused_by_column_and_file(first: pa.DataType, second: pa.DataType) -> None:
    for one, other in ((first, second), (second, first)):
        with pytest.raises(SchemaConflict) as caught:
            unified_schema([("a.parquet", pa.schema([("x", one)])), ("b.parquet", pa.schema([("x", other)]))])
        assert all(word in str(caught.value) for word in ("x (", "a.parquet", "b.parquet", str(one), str(other)))


def test_all_conflicts_are_in_one_error() -> None:
    first, second = (pa.schema([(name, kind) for name in "abc"]) for kind in (pa.int8(), pa.string()))
    with pytest.raises(SchemaConflict) as caught:
        unified_schema([("1", first), ("2", second)])
    assert all(f"{name} (" in str(caught.value) for name in "abc")


def test_columns_stand_as_they_first_appear_and_lacking_ones_may_be_null() -> None:
    first = pa.schema([pa.field("b", pa.int8(), False, {"PARQUET:field_id": "7", "other": "x"})])
    second = pa.schema([pa.field("a", pa.int8(), False), pa.field("b", pa.int8(), False)])
    schema = unified_schema([("1", first), ("2", second)])
    assert schema.names == ["b", "a"]
    assert [field.nullable for field in schema] == [False, True]
    assert schema.field("b").metadata == {b"PARQUET:field_id": b"7"}


@pytest.mark.parametrize(
    ("kind", "value", "other", "expected"),
    [
        (pa.int32(), -5, pa.int64(), -5),
        (pa.int16(), 3, pa.float32(), 3.0),
        (pa.int32(), 7, pa.decimal128(12, 2), Decimal("7.00")),
        (TS("s"), datetime(2024, 2, 1), TS("us"), datetime(2024, 2, 1)),  # noqa: DTZ001  what a clock said
        (pa.date32(), date(2024, 2, 1), TS("us"), datetime(2024, 2, 1)),  # noqa: DTZ001
        (pa.time32("s"), time(1, 2), pa.time64("us"), time(1, 2)),
        (pa.dictionary(pa.int8(), pa.string()), "x", pa.string(), "x"),
        (pa.binary(1), b"x", pa.binary(), b"x"),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), ["x", None], pa.list_(pa.string()), ["x", None]),
        (
            pa.struct([("b", pa.int8()), ("a", pa.int8())]),
            {"b": 1, "a": 2},
            pa.struct([("a", pa.int64()), ("c", pa.int8()), ("b", pa.int8())]),
            {"a": 2, "b": 1, "c": None},
        ),
    ],
)
def test_values_stay_what_they_are(kind: pa.DataType, value: Any, other: pa.DataType, expected: Any) -> None:
    schema = unified_schema([("1", pa.schema([("x", kind)])), ("2", pa.schema([("x", other), ("y", pa.int8())]))])
    values = (
        pa.array([value, None], pa.string()).dictionary_encode() if expected == "x" else pa.array([value, None], kind)
    )
    table = cast_batch(pa.table({"x": values}), schema, "1")
    assert table.schema == schema
    assert table.to_pydict() == {"x": [expected, None], "y": [None, None]}


def test_a_value_beyond_the_wider_type_is_refused_by_column_and_file() -> None:
    far = pa.table({"x": pa.array([2**40], TS("s"))})
    schema = unified_schema([("a.parquet", far.schema), ("b.parquet", pa.schema([("x", TS("ns"))]))])
    with pytest.raises(SchemaConflict, match=r"column x of a\.parquet"):
        cast_batch(far, schema, "a.parquet")


def test_sums_are_exact() -> None:
    big = (1 << 63) - 1
    assert exact_sum(pa.chunked_array([[big, None], [big, -1]])) == 2 * big - 1
    assert exact_sum(pa.array([-(1 << 63)] * 3)) == -3 << 63
    assert exact_sum(pa.array([(1 << 64) - 1] * 2, pa.uint64())) == 2 * ((1 << 64) - 1)
    nines = Decimal("9" * 36 + ".99")
    money = pa.array([nines, None, nines, Decimal("-0.01")], pa.decimal128(38, 2))
    assert exact_sum(money) == 2 * int("9" * 38) - 1
    tally = Tally({"m": 2})
    tally.add(pa.table({"m": money}))
    assert tally.sums_text() == {"m": "1" + "9" * 36 + ".97"}


def test_what_is_lost_changed_or_swapped_is_noticed() -> None:
    table = pa.table({"a": pa.array([1, 2, None], pa.int64()), "s": ["x", "y", None], "f": [0.1, 0.2, 0.3]})

    def tally(rows: pa.Table) -> Tally:
        found = Tally(summable(table.schema))
        found.add(rows)
        return found

    check_conserved(tally(table), tally(table.take(pa.array([2, 0, 1]))), "d01")
    assert tally(table).sums_text() == {"a": "3"}
    swapped = table.set_column(1, "s", [["y", "x", None]])
    for other in (table.slice(1), pa.concat_tables([table, table.slice(2)]), swapped):
        with pytest.raises(NotConserved, match="d01"):
            check_conserved(tally(table), tally(other), "d01")
