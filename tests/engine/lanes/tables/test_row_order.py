"""Keys of rows and the merge of sorted runs, by the twin and compiled: the order of Python's own comparisons."""

from __future__ import annotations

import importlib
import itertools
import math
from datetime import date
from decimal import Decimal
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadObject, MergeRefused
from engine.lanes.tables.merge import sort_keys
from engine.lanes.tables.merge.conservation import hash_rows
from engine.lanes.tables.merge.key_arrays import KeyPart, Keys
from engine.lanes.tables.merge.sort_keys import RowOrder

MODULES = ("_row_order_py", "_row_order")


@pytest.fixture(scope="module", params=MODULES)
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """The twin and, where they are built, the compiled kernels."""
    try:
        return importlib.import_module(f"engine.lanes.tables.merge.{request.param}")
    except ModuleNotFoundError:
        pytest.skip("the kernels are not built")


TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "small": (pa.int8(), st.integers(-128, 127)),
    "unsigned": (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    "real": (pa.float64(), st.floats(allow_nan=True)),
    "half": (pa.float32(), st.floats(width=32)),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=12)),
    "bytes": (pa.large_binary(), st.binary(max_size=12)),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "money": (pa.decimal128(20, 2), st.integers(-(10**18), 10**18).map(lambda cents: Decimal(cents) / 100)),
    "day": (pa.date32(), st.dates(date(1900, 1, 1), date(2200, 1, 1))),
}


def rank(value: Any) -> tuple[Any, ...]:
    """Return what Python compares as the order says: nulls, then values, NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value)
    return (1, value.encode() if isinstance(value, str) else value)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, RowOrder]:
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3, unique=True))
    rows = draw(st.integers(0, 12))
    columns, nullable = {}, draw(st.booleans())
    for name in names:
        kind, values = TYPES[name]
        few = st.sampled_from(draw(st.lists(values, min_size=1, max_size=3)))
        value = few | st.none() if nullable else few
        columns[name] = pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), kind)
    table = pa.table(columns)
    return table, sort_keys.row_order(table.schema, names, frozenset() if nullable else frozenset(names))


def keys_of(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch, order: RowOrder, table: pa.Table) -> Keys:
    with monkeypatch.context() as patch:
        patch.setattr(sort_keys, "join_parts", kernel.join_parts)
        return order.keys(table)


@given(given_table=tables(), offset=st.integers(0, 3))
def test_keys_compare_as_the_rows_do(kernel: ModuleType, given_table: tuple[pa.Table, RowOrder], offset: int) -> None:
    table, order = given_table
    table = table.slice(offset)
    keys = keys_of(kernel, pytest.MonkeyPatch(), order, table)
    ranks = [tuple(rank(value) for value in row.values()) for row in table.to_pylist()]
    found = [keys.key(row) for row in range(len(keys))]
    for first in range(len(ranks)):
        for second in range(len(ranks)):
            assert (found[first] < found[second]) == (ranks[first] < ranks[second])
            assert (found[first] == found[second]) == (ranks[first] == ranks[second])
        assert int(keys.heads[first]).to_bytes(8, "big") == found[first][:8].ljust(8, b"\0")
    unsorted = next((row for row in range(1, len(ranks)) if ranks[row] < ranks[row - 1]), -1)
    assert kernel.first_unsorted(keys) == unsorted


@given(
    given_table=tables(),
    cuts=st.lists(st.integers(0, 12), max_size=5),
    more=st.lists(st.booleans(), min_size=6, max_size=6),
    limit=st.integers(1, 15),
)
def test_sorted_runs_become_one(
    kernel: ModuleType, given_table: tuple[pa.Table, RowOrder], cuts: list[int], more: list[bool], limit: int
) -> None:
    """Merge until nothing is left, with any limits and any pauses where a run is used up."""
    table, order = given_table
    bounds = [0, *sorted(min(cut, table.num_rows) for cut in cuts), table.num_rows]
    pieces = [table.slice(start, end - start) for start, end in itertools.pairwise(bounds)]
    ranked = [[tuple(rank(value) for value in row.values()) for row in piece.to_pylist()] for piece in pieces]
    runs, expected = [], []
    for number, (piece, ranks) in enumerate(zip(pieces, ranked, strict=True)):
        places = sorted(range(len(ranks)), key=ranks.__getitem__)
        runs.append(order.keys(piece.take(pa.array(places, pa.int64()))))
        expected += [(ranks[place], number, row) for row, place in enumerate(places)]
    positions, goes_on = np.zeros(len(runs), np.int64), np.array(more[: len(runs)], np.uint8)
    found: list[tuple[int, int]] = []
    while True:
        numbers, starts, counts = kernel.merge_runs(runs, positions, goes_on, limit)
        assert counts.sum() <= limit
        for number, start, count in zip(numbers.tolist(), starts.tolist(), counts.tolist(), strict=True):
            found += [(number, row) for row in range(start, start + count)]
        for number, run in enumerate(runs):
            if goes_on[number] and positions[number] == len(run):
                goes_on[number] = 0  # and nothing followed
        if not len(numbers):
            break
    assert found == [(number, row) for _, number, row in sorted(expected)]


def test_a_run_with_more_rows_to_come_ends_the_merge_with_its_last_row(kernel: ModuleType) -> None:
    order = sort_keys.row_order(pa.schema([("a", pa.int64())]), ["a"], frozenset("a"))
    runs = [order.keys(pa.table({"a": pa.array(values, pa.int64())})) for values in ([1, 2, 3], [2, 9], [4])]
    positions = np.zeros(3, np.int64)
    numbers, starts, counts = kernel.merge_runs(runs, positions, np.array([1, 0, 0], np.uint8), 100)
    assert (numbers.tolist(), starts.tolist(), counts.tolist()) == ([0, 1, 0], [0, 0, 2], [2, 1, 1])
    assert positions.tolist() == [3, 1, 0]


def test_many_short_segments_are_kept(kernel: ModuleType) -> None:
    order = sort_keys.row_order(pa.schema([("a", pa.int64())]), ["a"], frozenset("a"))
    runs = [order.keys(pa.table({"a": pa.array(range(first, 6000, 2), pa.int64())})) for first in (0, 1)]
    numbers, starts, counts = kernel.merge_runs(runs, np.zeros(2, np.int64), np.zeros(2, np.uint8), 10_000)
    assert numbers.tolist() == [0, 1] * 3000
    assert starts.tolist() == [row for row in range(3000) for _ in range(2)]
    assert set(counts.tolist()) == {1}


BAD_OFFSETS = [
    [0, 2, 4],  # one too few
    [0, 2, 4, 6, 8],  # one too many
    [-1, 2, 4, 6],
    [0, 2, 4, 7],  # beyond the end
    [0, 4, 2, 6],  # the ends are right, and the second value ends before it begins
    [0, 1 << 40, 4, 6],  # the same, far outside
    [0, -(1 << 40), 4, 6],
    [6, 4, 2, 0],
]


@pytest.mark.parametrize("offsets", BAD_OFFSETS)
def test_impossible_offsets_are_refused_before_anything_is_read(kernel: ModuleType, offsets: list[int]) -> None:
    data = np.frombuffer(b"aabbcc", np.uint8)
    bad, good = np.array(offsets, np.int64), np.array([0, 2, 4, 6], np.int64)
    for valid, escaped in itertools.product((None, np.ones(3, np.uint8)), (False, True)):
        kernel.join_parts(3, [KeyPart(data, good, valid, escaped)])
        with pytest.raises(ValueError, match="offsets of a part"):
            kernel.join_parts(3, [KeyPart(data, good, None, False), KeyPart(data, bad, valid, escaped)])
    with pytest.raises(ValueError, match="offsets of keys"):
        Keys(np.zeros(3, np.uint64), data, bad)


def test_impossible_positions_and_bits_are_refused(kernel: ModuleType) -> None:
    data, good = np.frombuffer(b"aabbcc", np.uint8), np.array([0, 2, 4, 6], np.int64)
    with pytest.raises(ValueError, match="different number of rows"):
        kernel.join_parts(3, [KeyPart(data, good, np.ones(2, np.uint8), False)])
    run = Keys(np.zeros(3, np.uint64), data, good)
    with pytest.raises(ValueError, match="negative position"):
        kernel.merge_runs([run], np.array([-1]), np.zeros(1, np.uint8), 10)
    assert len(kernel.merge_runs([run], np.array([7]), np.zeros(1, np.uint8), 10)[0]) == 0


def test_columns_that_cannot_be_sorted_by_are_refused_and_lacking_ones_left_out() -> None:
    schema = pa.schema([("a", pa.list_(pa.int8())), ("b", pa.int8()), ("n", pa.null())])
    with pytest.raises(MergeRefused, match="column a"):
        sort_keys.row_order(schema, ["b", "a"], frozenset())
    names = [column.name for column in sort_keys.row_order(schema, ["x", "b", "n", "b"], frozenset()).columns]
    assert names == ["b"]


def test_a_null_in_a_column_declared_without_nulls_is_damage() -> None:
    table = pa.table({"a": pa.array([1, None], pa.int64())})
    with pytest.raises(BadObject, match="column a"):
        sort_keys.row_order(table.schema, ["a"], frozenset("a")).keys(table)


@given(
    st.lists(st.integers(0, (1 << 64) - 1), max_size=6),
    st.lists(st.binary(max_size=40), min_size=6, max_size=6),
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
)
def test_hashes_are_those_of_the_twin(words: list[int], texts: list[bytes], lengths: list[int]) -> None:
    compiled = pytest.importorskip("engine.lanes.tables.merge._row_hashes")
    twin = importlib.import_module("engine.lanes.tables.merge._row_hashes_py")
    rows = len(words)
    results = []
    for module in (compiled, twin):
        hashes = np.zeros(rows, np.uint64)
        module.add_words(hashes, np.array(words, np.uint64))
        offsets = np.cumsum([0, *(len(text) for text in texts[:rows])], dtype=np.int64)
        module.add_bytes(hashes, np.frombuffer(b"".join(texts[:rows]), np.uint8), offsets)
        bounds = np.cumsum([0, *lengths[:rows]], dtype=np.int64)
        module.add_lists(hashes, np.arange(bounds[-1], dtype=np.uint64), bounds)
        results.append(hashes.tolist())
    assert results[0] == results[1]


NESTED = pa.table(
    {
        "list": pa.array([[1, None], None, [], [2]], pa.list_(pa.int32())),
        "struct": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": None}, {"x": 1, "y": "a"}]),
        "map": pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int8())),
        "flag": [True, None, False, True],
        "fixed": pa.array([b"abc", None, b"abd", b"abc"], pa.binary(3)),
        "money": pa.array([Decimal("1.5"), None, Decimal("-1.5"), Decimal("1.5")], pa.decimal128(9, 1)),
        "text": ["a", None, "", "a"],
        "none": pa.nulls(4),
    }
)


def test_a_rows_hash_is_of_its_values_not_of_where_they_lie() -> None:
    hashes = hash_rows(NESTED)
    assert len(set(hashes.tolist())) == 4
    shuffled = NESTED.take(pa.array([3, 1, 0, 2]))
    assert hash_rows(shuffled).tolist() == hashes[[3, 1, 0, 2]].tolist()
    assert [int(hash_rows(NESTED.slice(row, 1))[0]) for row in range(4)] == hashes.tolist()
    assert hash_rows(pa.concat_tables([NESTED.slice(2), NESTED])).tolist() == [*hashes[2:], *hashes]


@pytest.mark.parametrize("column", NESTED.column_names[:-1])
def test_a_change_of_any_column_changes_the_hash(column: str) -> None:
    place = NESTED.column_names.index(column)
    changed = NESTED.set_column(place, column, NESTED.column(column).take(pa.array([1, 2, 1, 2])))
    assert not set(hash_rows(changed).tolist()) & set(hash_rows(NESTED).tolist())
