"""Roll-up: what a plain group-by gives, once or twice, over files that are rolled up already or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasketches
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject, MergeRefused
from engine.formats.parquet.errors import NotConserved, SumOverflow
from engine.lanes.tables.jobs import Metric, RollUp
from engine.lanes.tables.merge import folder_merge
from engine.lanes.tables.merge.sketches import BadSketch, estimate, sketch_of, union_of
from tests.engine.lanes.tables.table_files import HOUR_MS, TableFolder

US = pa.timestamp("us")
METRICS = (
    Metric(name="rows", function="count"),
    Metric(name="bytes", function="sum", column="bytes"),
    Metric(name="seconds", function="sum", column="seconds"),
    Metric(name="fastest", function="min", column="seconds"),
    Metric(name="largest", function="max", column="bytes"),
    Metric(name="users", function="distinct", column="user"),
)
ROLL_UP = RollUp(dimensions=("region", "status"), metrics=METRICS, granularity_ms=HOUR_MS)
QUICK = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def folder(tmp_path: Path) -> TableFolder:
    (path := tmp_path / "table").mkdir()
    return TableFolder(path)


Row = tuple[int, str | None, int, int | None, float, str | None]
ROWS = st.lists(
    st.tuples(
        st.integers(0, 5).map(lambda quarters: quarters * HOUR_MS // 4),
        st.sampled_from(["eu", "us", None]),
        st.sampled_from([200, 500]),
        st.integers(-(1 << 40), 1 << 40) | st.none(),
        st.sampled_from([0.1, 0.2, 0.3, 1e10, -1e-3]),
        st.sampled_from(["ann", "bob", "cyd", None]),
    ),
    max_size=12,
)


def requests(rows: Sequence[Row]) -> pa.Table:
    at, region, status, size, seconds, user = (list(column) for column in zip(*rows, strict=True)) if rows else [[]] * 6
    is_small = all(value is None or abs(value) < 1 << 31 for value in size)
    return pa.table(
        {
            "at": pa.array([ms * 1000 for ms in at], US),
            "region": pa.array(region, pa.string()),
            "status": pa.array(status, pa.int16()),
            "bytes": pa.array(size, pa.int32() if is_small else pa.int64()),
            "seconds": pa.array(seconds, pa.float64()),
            "user": pa.array(user, pa.string()),
        }
    )


def naive(rows: Sequence[Row]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Group in plain Python."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row[0] // HOUR_MS * HOUR_MS, row[1], row[2]), []).append(row)
    found = {}
    for key, members in groups.items():
        sizes = [row[3] for row in members if row[3] is not None]
        seconds = [row[4] for row in members]
        users = {row[5] for row in members} - {None}
        total, largest = (sum(sizes), max(sizes)) if sizes else (None, None)
        found[key] = (len(members), total, math.fsum(seconds), min(seconds), largest, len(users))
    return found


def rolled(table: pa.Table) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in table.to_pylist():
        key = (_ms(row["at"]), row["region"], row["status"])
        assert key not in found
        users = round(estimate(row["users"]))
        found[key] = (row["rows"], row.get("bytes"), row["seconds"], row["fastest"], row.get("largest"), users)
    return found


def _ms(at: datetime) -> int:
    return round((at - datetime(1970, 1, 1)).total_seconds() * 1000)  # noqa: DTZ001  the column has no zone


def close(first: dict[tuple[Any, ...], tuple[Any, ...]], second: dict[tuple[Any, ...], tuple[Any, ...]]) -> bool:
    def near(one: Any, other: Any) -> bool:
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-6) if isinstance(one, float) else one == other

    return first.keys() == second.keys() and all(
        all(near(one, other) for one, other in zip(first[key], second[key], strict=True)) for key in first
    )


@pytest.mark.slow
@QUICK
@given(first=ROWS, second=ROWS, later=ROWS)
def test_rows_become_those_of_a_plain_group_by_once_and_again(
    tmp_path: Path, first: list[Row], second: list[Row], later: list[Row]
) -> None:
    """Rolling up what is rolled up changes no byte; rolled-up files and new rows give what all rows at once give."""
    path = tmp_path / f"table-{len(list(tmp_path.iterdir()))}"
    path.mkdir()
    folder = TableFolder(path)
    files = [folder.put(f"{number}.parquet", requests(rows)) for number, rows in enumerate((first, second))]
    once = folder.merge(folder.spec(files, roll_up=ROLL_UP, target_rows=2))
    table = folder.read(once) if once.outputs else None
    assert close(rolled(table) if table is not None else {}, naive([*first, *second]))
    known = [replace(files[0], path=file.path, size=file.size, rows=file.rows) for file in once.outputs]
    if table is None:
        return
    again = folder.merge(folder.spec(known, roll_up=ROLL_UP, fence=2))
    assert folder.read(again).equals(table)
    added = folder.put("later.parquet", requests(later))
    both = folder.merge(folder.spec([*known, added], roll_up=ROLL_UP, fence=3))
    assert close(rolled(folder.read(both)), naive([*first, *second, *later]))
    assert both.chunks[0].sums["rows"] == str(len([*first, *second, *later]))


def test_rolled_up_rows_are_sorted_and_time_is_cut_from_the_start_of_the_chunk(folder: TableFolder) -> None:
    half = HOUR_MS // 2
    rows: list[Row] = [(half + quarter * HOUR_MS // 4, "eu", 200, 1, 1.0, "a") for quarter in range(6)]
    spec = folder.spec([folder.put("a.parquet", requests(rows))], roll_up=ROLL_UP, sort_columns=("region", "user"))
    chunk = replace(spec.chunks[0], start_ms=half)
    result = folder.merge(replace(spec, chunks=(chunk,)))
    table = folder.read(result)
    assert [_ms(at) for at in table["at"].to_pylist()] == [half, half + HOUR_MS]
    assert (result.chunks[0].rows_read, result.chunks[0].rows_written) == (6, 2)
    metadata = pq.read_metadata(folder.path / result.outputs[0].path)
    assert [column.column_index for column in metadata.row_group(0).sorting_columns] == [1, 0, 2]


@pytest.mark.parametrize(
    ("kind", "unit", "values", "expected"),
    [
        (pa.date32(), "", [0, 0], [date(1970, 1, 1)]),
        (pa.int64(), "s", [3599, 3600, 7199], [0, 3600]),
        (pa.timestamp("ms", "UTC"), "", [3_599_999, 3_600_000], None),
        (pa.timestamp("ns"), "", [1, 3_600_000_000_001], None),
    ],
)
def test_times_of_any_type_are_cut(
    folder: TableFolder, kind: pa.DataType, unit: str, values: list[int], expected: list[Any] | None
) -> None:
    stored = pa.array(values, pa.int32() if pa.types.is_date32(kind) else pa.int64())
    table = pa.table({"at": stored if pa.types.is_integer(kind) else stored.view(kind)})
    roll_up = RollUp(dimensions=(), metrics=(METRICS[0],), granularity_ms=HOUR_MS)
    result = folder.merge(folder.spec([folder.put("a.parquet", table)], roll_up=roll_up, time_unit=unit))
    found = folder.read(result)
    assert found.schema.field("at").type == kind
    assert found["at"].to_pylist() == expected if expected else found["rows"].to_pylist() == [1, 1]


def test_dimensions_and_metrics_that_no_file_has_are_left_out(folder: TableFolder) -> None:
    file = folder.put("a.parquet", requests([(0, "eu", 200, 1, 1.0, "a")]).select(["at", "region", "seconds"]))
    result = folder.merge(folder.spec([file], roll_up=ROLL_UP))
    assert folder.read(result).column_names == ["at", "region", "rows", "seconds", "fastest"]


def test_little_memory_gives_the_same_bytes(folder: TableFolder) -> None:
    rows: list[Row] = [(n % 7 * HOUR_MS // 3, f"r{n % 50}", 200, n, n / 7, f"u{n % 11}") for n in range(4000)]
    files = [folder.put(f"{n}.parquet", requests(rows[n * 400 : n * 400 + 400])) for n in range(10)]
    contents = []
    for memory in (512 << 20, 20_000):
        result = folder.merge(folder.spec(files, roll_up=ROLL_UP, task_memory_bytes=memory))
        contents.append([folder.store.get(file.path) for file in result.outputs])
    assert contents[0] == contents[1]


def test_whole_numbers_are_summed_exactly_or_not_at_all(folder: TableFolder) -> None:
    def summed(*values: int, kind: pa.DataType) -> Any:
        table = pa.table({"at": pa.array([0] * len(values), US), "bytes": pa.array(values, kind)})
        roll_up = RollUp(dimensions=(), metrics=(METRICS[1],))
        result = folder.merge(folder.spec([folder.put("a.parquet", table)], roll_up=roll_up))
        return folder.read(result)["bytes"].to_pylist()

    big = 1 << 62
    assert summed(big, big - 1, -big, kind=pa.int64()) == [big - 1]
    assert summed(big, big, big, kind=pa.uint64()) == [3 * big]
    with pytest.raises(SumOverflow, match="bytes"):
        summed(big, big, kind=pa.int64())
    with pytest.raises(SumOverflow, match="bytes"):
        summed(-big, -big, -big, kind=pa.int64())


def test_decimals_are_summed_exactly(folder: TableFolder) -> None:
    nines = Decimal("9" * 20 + ".99")
    table = pa.table({"at": pa.array([0, 0], US), "bytes": pa.array([nines] * 2, pa.decimal128(22, 2))})
    roll_up = RollUp(dimensions=(), metrics=METRICS[1:2])
    result = folder.merge(folder.spec([folder.put("a.parquet", table)], roll_up=roll_up))
    assert folder.read(result)["bytes"].to_pylist() == [2 * nines]
    assert result.chunks[0].sums == {"bytes": "1" + "9" * 20 + ".98"}


@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        (Metric(name="x", function="sum", column="c"), pa.string()),
        (Metric(name="x", function="min", column="c"), pa.list_(pa.int8())),
        (Metric(name="x", function="distinct", column="c"), pa.list_(pa.int8())),
    ],
)
def test_metrics_of_columns_that_have_none_are_refused(folder: TableFolder, metric: Metric, kind: pa.DataType) -> None:
    table = pa.table({"at": pa.array([0], US), "c": pa.nulls(1, kind)})
    with pytest.raises(MergeRefused, match=r"column c.*a\.parquet"):
        folder.merge(folder.spec([folder.put("a.parquet", table)], roll_up=RollUp(dimensions=(), metrics=(metric,))))


def test_a_file_rolled_up_in_another_way_is_refused(folder: TableFolder) -> None:
    file = folder.put("a.parquet", requests([(0, "eu", 200, 1, 1.0, "a")]))
    (output,) = folder.merge(folder.spec([file], roll_up=replace(ROLL_UP, dimensions=("region",)))).outputs
    known = replace(file, path=output.path, size=output.size, rows=output.rows)
    with pytest.raises(MergeRefused, match="without status"):
        folder.merge(folder.spec([known], roll_up=ROLL_UP, fence=2))
    coarser = replace(ROLL_UP, dimensions=("region",), metrics=METRICS[:2])
    assert folder.read(folder.merge(folder.spec([known], roll_up=coarser, fence=3)))["rows"].to_pylist() == [1]


def test_a_sketch_that_is_none_names_its_file(folder: TableFolder) -> None:
    file = folder.put("a.parquet", requests([(0, "eu", 200, 1, 1.0, "a")]))
    (output,) = folder.merge(folder.spec([file], roll_up=ROLL_UP)).outputs
    table = pq.read_table(folder.path / output.path)
    place = table.column_names.index("users")
    broken = folder.put("b.parquet", table.set_column(place, "users", pa.array([b"\xff" * 16])))
    with pytest.raises(BadObject, match=r"b\.parquet: column users"):
        folder.merge(folder.spec([broken], roll_up=ROLL_UP))


def test_a_sum_that_is_lost_is_noticed(folder: TableFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_merge, "fold_sorted", lambda tables, plan, order: (table.slice(1) for table in tables))
    rows: list[Row] = [(0, "eu", 200, 1, 1.0, "a"), (0, "us", 200, 2, 1.0, "a")]
    with pytest.raises(NotConserved, match="the sum of column rows is 2 before and 1 after"):
        folder.merge(folder.spec([folder.put("a.parquet", requests(rows))], roll_up=ROLL_UP))


def test_a_sketch_depends_on_its_values_only() -> None:
    values = [f"user-{number}" for number in range(30_000)]
    whole = sketch_of(values)
    parts = [sketch_of(values[start : start + 1000]) for start in range(0, 30_000, 700)]
    assert union_of(parts) == whole
    assert union_of([union_of(parts[:20]), *parts[20:][::-1]]) == whole
    assert sketch_of(values[::-1] * 2) == whole
    assert union_of([whole]) == whole
    assert abs(estimate(whole) - 30_000) < 30_000 * 0.05
    other = datasketches.compact_theta_sketch.deserialize(whole)
    assert other.get_estimate() == estimate(whole)


def test_few_values_are_counted_exactly_whatever_their_type() -> None:
    assert estimate(sketch_of([None])) == 0
    values = [1, 1.0, 2.5, "1", b"1", Decimal("1.50"), Decimal("1.5"), -0.0, 0, (1 << 64) - 1]
    assert estimate(sketch_of(values)) == 7
    assert union_of([]) == sketch_of([])
    with pytest.raises(BadSketch):
        estimate(b"none")
