"""Merges of Parquet files in this process: the rows of a plain concatenation, sorted; nothing more, nothing less."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core.checksums import crc32c
from engine.core.errors import BadObject, LithifyError, MergeCancelled, MergeRefused
from engine.formats.parquet import file_rows
from engine.formats.parquet.errors import ForeignFile, NotConserved, SchemaConflict
from engine.lanes.tables.jobs import TableFile
from engine.lanes.tables.merge import folder_merge, merge_job
from engine.lanes.tables.plain.facts import read_facts
from engine.lanes.tables.results import read_table_result
from engine.storage import StorageError
from tests.engine.lanes.tables.table_files import DAY_MS, TableFolder

US = pa.timestamp("us")
QUICK = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def folder(tmp_path: Path) -> TableFolder:
    (path := tmp_path / "table").mkdir()
    return TableFolder(path)


def fresh(tmp_path: Path) -> TableFolder:
    """Return a folder for one example of many."""
    path = tmp_path / f"table-{len(list(tmp_path.iterdir()))}"
    path.mkdir()
    return TableFolder(path)


def events(times: list[int | None], **columns: list[Any]) -> pa.Table:
    return pa.table({"at": pa.array(times, US)} | columns)


def rows(table: pa.Table) -> Counter[str]:
    """Return the rows without their order."""
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())


def test_files_become_one_sorted_by_time(folder: TableFolder) -> None:
    files = [folder.put("b.parquet", events([3, 5], x=[1, 2])), folder.put("a.parquet", events([1, 3, 9], x=[3, 4, 5]))]
    result = folder.merge(folder.spec(files))
    (chunk,) = result.chunks
    assert folder.read(result).to_pydict()["x"] == [3, 1, 4, 2, 5]
    assert (chunk.rows_read, chunk.rows_written, chunk.sums) == (5, 5, {"x": "15"})
    assert chunk.sources == ("b.parquet", "a.parquet")
    assert chunk.bytes_read == sum(file.size for file in files)
    (output,) = chunk.outputs
    data = folder.store.get(output.path)
    assert (output.size, output.crc32c, output.rows) == (len(data), crc32c(data), 5)
    assert (output.min_time_ms, output.max_time_ms) == (0, 0)
    assert read_table_result(json.loads(json.dumps(result.to_json()))) == result


def test_an_output_records_its_sort_columns_and_writer(folder: TableFolder) -> None:
    files = [
        folder.put("a.parquet", events([1], x=["b"]), compression="gzip"),
        folder.put("b.parquet", events([2], x=["a"])),
    ]
    (output,) = folder.merge(folder.spec(files, sort_columns=("x",))).outputs
    facts = read_facts(folder.store, output.path, time_column="at")
    assert facts.sorted_by == ("x", "at")
    metadata = pq.read_metadata(folder.path / output.path)
    told = json.loads(metadata.metadata[b"lithify"])
    assert (told["sources"], told["fence"]) == (2, 1)
    column = metadata.row_group(0).column(0)
    assert (column.statistics.null_count, column.compression, column.has_offset_index) == (0, "GZIP", True)


def test_folders_are_merged_apart_and_outputs_lie_beside_their_sources(folder: TableFolder) -> None:
    files = [
        folder.put(f"dt=1970-01-01/region={region}/{name}.parquet", events([1]))
        for region in ("eu", "us")
        for name in "ab"
    ]
    result = folder.merge(folder.spec(files))
    assert [file.path.rpartition("/")[0] for file in result.outputs] == [
        "dt=1970-01-01/region=eu",
        "dt=1970-01-01/region=us",
    ]
    assert result.chunks[0].rows_written == 4


def test_a_file_in_two_chunks_is_cut_at_their_border(folder: TableFolder) -> None:
    times = [DAY_MS * 1000 + 1, 0, DAY_MS * 1000, DAY_MS * 1000 - 1]
    shared = folder.put("a.parquet", events(times, x=[1, 2, 3, 4]), whole=False)
    alone = folder.put("b.parquet", events([5], x=[5]))
    result = folder.merge(folder.spec([shared, alone], [shared]))
    assert [chunk.rows_read for chunk in result.chunks] == [3, 2]
    assert folder.read(result).to_pydict()["x"] == [2, 5, 4, 3, 1]
    assert sum(chunk.bytes_read for chunk in result.chunks) <= shared.size + alone.size


@pytest.mark.parametrize("times", [[-1, 0], [0, DAY_MS * 1000], [None, 0]])
def test_rows_of_a_shared_file_outside_of_all_chunks_are_never_dropped(
    folder: TableFolder, times: list[int | None]
) -> None:
    shared = folder.put("a.parquet", events(times), whole=False)
    with pytest.raises(BadObject, match=r"a\.parquet"):
        folder.merge(folder.spec([shared]))
    assert folder.files() == ["a.parquet"]


def test_rows_without_a_time_stay_in_a_whole_file(folder: TableFolder) -> None:
    result = folder.merge(
        folder.spec([folder.put("a.parquet", events([None, 7])), folder.put("b.parquet", events([3]))])
    )
    assert folder.read(result)["at"].null_count == 1
    assert (result.outputs[0].min_time_ms, result.outputs[0].rows) == (0, 3)


def test_times_may_be_numbers_of_a_unit(folder: TableFolder) -> None:
    file = folder.put("a.parquet", pa.table({"at": [90_000, 5]}), whole=False)
    result = folder.merge(folder.spec([file], [file], time_unit="s"))
    assert [chunk.rows_read for chunk in result.chunks] == [1, 1]
    assert [file.min_time_ms for file in result.outputs] == [5_000, 90_000_000]


def random_table(seed: int, count: int, presorted: bool) -> pa.Table:
    chance = np.random.default_rng(seed)
    at = chance.integers(0, DAY_MS * 1000, count)
    at = np.sort(at) if presorted else at
    names = pa.array(
        [None if value < 3 else f"service-{value}" for value in chance.integers(0, 30, count)], pa.string()
    )
    return pa.table(
        {"at": pa.array(at, US), "name": names, "value": chance.random(count), "id": np.arange(count) + seed}
    )


@pytest.mark.slow
@pytest.mark.parametrize("presorted", [True, False])
@pytest.mark.parametrize("sort_columns", [(), ("name",)])
@pytest.mark.parametrize("memory", [512 << 20, 200_000])
def test_any_memory_gives_the_same_bytes(
    folder: TableFolder, presorted: bool, sort_columns: tuple[str, ...], memory: int
) -> None:
    """Little memory spills and merges in passes; none of it shows."""
    files = [folder.put(f"{n}.parquet", random_table(n, 3000, presorted)) for n in range(12)]
    spec = folder.spec(files, sort_columns=sort_columns, target_bytes=150_000)
    result = folder.merge(replace(spec, task_memory_bytes=memory))
    outputs = {file.path: folder.store.get(file.path) for file in result.outputs}
    assert len(outputs) > 5
    assert all(len(data) <= 150_000 for data in outputs.values())
    again = folder.merge(spec)
    assert again == result
    assert {file.path: folder.store.get(file.path) for file in again.outputs} == outputs
    naive = pa.concat_tables([pq.read_table(folder.path / file.path) for file in files])
    places = np.arange(naive.num_rows)
    numbered = naive.append_column("place", pa.array(places))
    order = [(name, "ascending", "at_start") for name in (*sort_columns, "at", "place")]
    assert folder.read(result).equals(numbered.sort_by(order).drop_columns(["place"]))


def test_sorted_files_larger_than_memory_are_read_as_streams(
    folder: TableFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"sorting_columns": [pq.SortingColumn(0)], "row_group_size": 500}
    files = [folder.put(f"{n}.parquet", random_table(n, 5000, True), **options) for n in range(3)]
    spec = folder.spec(files, task_memory_bytes=2_000_000)
    monkeypatch.setattr(folder_merge, "_Spill", None)
    assert folder.read(folder.merge(spec))["at"].to_pylist() == sorted(
        pa.concat_tables([pq.read_table(folder.path / file.path) for file in files])["at"].to_pylist()
    )


def test_files_that_lie_about_their_order_are_sorted(folder: TableFolder) -> None:
    options = {"sorting_columns": [pq.SortingColumn(0)], "row_group_size": 500}
    files = [folder.put(f"{n}.parquet", random_table(n, 5000, n != 1), **options) for n in range(3)]
    result = folder.merge(folder.spec(files, task_memory_bytes=2_000_000))
    times = folder.read(result)["at"].to_pylist()
    assert times == sorted(times)
    assert len(times) == 15_000


def test_rows_that_compress_worse_and_worse_still_give_files_within_the_target(folder: TableFolder) -> None:
    chance = np.random.default_rng(3)
    easy = pa.table({"at": pa.array(range(60_000), US), "x": pa.array([0] * 60_000, pa.int64())})
    hard = pa.table({"at": pa.array(range(60_000, 120_000), US), "x": chance.integers(0, 1 << 62, 60_000)})
    result = folder.merge(
        folder.spec([folder.put("a.parquet", easy), folder.put("b.parquet", hard)], target_bytes=200_000)
    )
    assert all(file.size <= 200_000 for file in result.outputs)
    assert folder.read(result).equals(pa.concat_tables([easy, hard]))


def test_a_limit_of_rows_holds_too_and_a_single_large_row_is_a_file(folder: TableFolder) -> None:
    files = [folder.put("a.parquet", events(list(range(10))))]
    assert [file.rows for file in folder.merge(folder.spec(files, target_rows=4)).outputs] == [4, 4, 2]
    assert [file.rows for file in folder.merge(folder.spec(files, target_bytes=1)).outputs] == [1] * 10


def test_files_without_rows_give_no_file(folder: TableFolder) -> None:
    result = folder.merge(folder.spec([folder.put("a.parquet", events([])), folder.put("b.parquet", events([]))]))
    assert (result.outputs, result.chunks[0].rows_read) == ([], 0)


@pytest.mark.parametrize("whole", [True, False])
def test_old_timestamps_are_instants(folder: TableFolder, whole: bool) -> None:
    file = folder.put("a.parquet", events([5, 3], x=["a", "b"]), whole=whole, use_deprecated_int96_timestamps=True)
    table = folder.read(folder.merge(folder.spec([file])))
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table["x"].to_pylist() == ["b", "a"]


def test_columns_that_came_or_grew_later_are_kept(folder: TableFolder) -> None:
    old = pa.table(
        {
            "at": pa.array([2], pa.timestamp("ms")),
            "n": pa.array([7], pa.int32()),
            "kind": pa.array(["x"]).dictionary_encode(),
        }
    )
    new = pa.table({"at": pa.array([1], US), "kind": ["y"], "n": pa.array([1 << 40]), "extra": [[1, 2]]})
    result = folder.merge(folder.spec([folder.put("a.parquet", old), folder.put("b.parquet", new)]))
    assert folder.read(result).select(["n", "kind", "extra"]).to_pylist() == [
        {"n": 1 << 40, "kind": "y", "extra": [1, 2]},
        {"n": 7, "kind": "x", "extra": None},
    ]


@st.composite
def datasets(draw: st.DrawFn) -> list[pa.Table]:
    """Files whose schemas have grown apart, with nulls, NaN and ties."""
    kinds = {
        "n": ([pa.int8(), pa.int32(), pa.int64()], st.integers(-100, 100)),
        "f": ([pa.float32(), pa.float64()], st.floats(width=32)),
        "s": ([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], st.text("ab\0é", max_size=3)),
        "l": ([pa.list_(pa.int32()), pa.list_(pa.int64())], st.lists(st.integers(0, 3), max_size=2)),
        "t": (
            [pa.timestamp("ms"), US],
            st.integers(0, 86_400).map(lambda seconds: datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)),
        ),
    }
    tables = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(0, 6))
        columns = {"at": pa.array(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), US)}
        for name in draw(st.lists(st.sampled_from(sorted(kinds)), unique=True)):
            choices, values = kinds[name]
            cells = draw(st.lists(values | st.none(), min_size=count, max_size=count))
            kind = draw(st.sampled_from(choices))
            plain = pa.array(cells, pa.string() if pa.types.is_dictionary(kind) else kind)
            columns[name] = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain
        tables.append(pa.table(columns))
    return tables


@pytest.mark.slow
@QUICK
@given(
    tables=datasets(),
    sort_columns=st.lists(st.sampled_from("nfst"), unique=True, max_size=2),
    rows_max=st.integers(0, 3),
)
def test_rows_are_those_of_a_plain_concatenation(
    tmp_path: Path, tables: list[pa.Table], sort_columns: list[str], rows_max: int
) -> None:
    folder = fresh(tmp_path)
    files = [folder.put(f"{number}.parquet", table, row_group_size=2) for number, table in enumerate(tables)]
    spec = folder.spec(files, sort_columns=tuple(sort_columns), target_rows=rows_max, task_memory_bytes=1)
    result = folder.merge(spec)
    naive = pa.concat_tables(
        [pq.read_table(folder.path / file.path).cast(plain_schema(file.path, folder)) for file in files],
        promote_options="permissive",
    )
    if not naive.num_rows:
        assert not result.outputs
        return
    found = folder.read(result)
    assert rows(found.select(naive.column_names)) == rows(naive)
    assert found["at"].to_pylist() == sorted(found["at"].to_pylist()) or sort_columns


def plain_schema(path: str, folder: TableFolder) -> pa.Schema:
    schema = pq.read_schema(folder.path / path)
    return pa.schema(
        [(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type) for field in schema]
    )


def test_types_in_conflict_are_refused_with_columns_and_files(folder: TableFolder) -> None:
    files = [folder.put("a.parquet", events([1], x=["a"])), folder.put("b.parquet", events([1], x=[1]))]
    with pytest.raises(SchemaConflict, match=r"x \(string in a\.parquet, int64 in b\.parquet\)"):
        folder.merge(folder.spec(files))
    assert folder.files() == ["a.parquet", "b.parquet"]


def _flip(data: bytes) -> bytes:
    return data[:40] + bytes(byte ^ 0xFF for byte in data[40:60]) + data[60:]


def test_a_file_that_became_another_formats_since_it_was_registered_is_not_merged(folder: TableFolder) -> None:
    plain = folder.put("a.parquet", events([2]))
    marked = events([1]).replace_schema_metadata({b"iceberg.schema": b"{}"})
    with pytest.raises(ForeignFile, match="a file of Apache Iceberg") as caught:
        folder.merge(folder.spec([plain, folder.put("b.parquet", marked)]))
    assert caught.value.object_name == "b.parquet"
    assert folder.files() == ["a.parquet", "b.parquet"]


@pytest.mark.parametrize(
    ("damage", "section"),
    [
        (lambda data: data[:-30], "footer"),
        (lambda data: data[: len(data) // 2] + data[len(data) // 2 + 1 :], "footer"),
        (_flip, "row group 0, column at"),
        (lambda data: b"", "footer"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_is_left(
    folder: TableFolder, damage: Callable[[bytes], bytes], section: str
) -> None:
    good = [folder.put(f"{day}.parquet", events([day * DAY_MS * 1000])) for day in range(2)]
    bad = folder.put("bad.parquet", events(list(range(100))), write_page_checksum=True)
    folder.store.put("bad.parquet", damage(folder.store.get("bad.parquet")))
    with pytest.raises(BadObject) as caught:
        folder.merge(folder.spec([good[0]], [good[1], bad]))
    assert (caught.value.object_name, caught.value.section) == ("bad.parquet", section)
    assert folder.files() == ["0.parquet", "1.parquet", "bad.parquet"]


@QUICK
@given(data=st.data())
def test_no_damage_passes_for_rows_that_were_never_there(tmp_path: Path, data: st.DataObject) -> None:
    """Any bytes changed: an error of ours or, where nothing was hit that counts, the same rows."""
    folder = fresh(tmp_path)
    table = random_table(1, 200, True)
    file = folder.put("a.parquet", table, write_page_checksum=True, compression="zstd")
    changed = bytearray(folder.store.get("a.parquet"))
    for place in data.draw(st.lists(st.integers(0, len(changed) - 1), min_size=1, max_size=4)):
        changed[place] = data.draw(st.integers(0, 255))
    folder.store.put("a.parquet", bytes(changed))
    try:
        result = folder.merge(folder.spec([file]))
    except LithifyError:
        assert folder.files() == ["a.parquet"]
    else:
        assert result.chunks[0].rows_written == 200


@pytest.mark.parametrize("time", [-1, DAY_MS * 1000])
def test_rows_outside_of_the_time_range_in_a_files_statistics_are_damage(folder: TableFolder, time: int) -> None:
    files = [folder.put("good.parquet", events([0])), folder.put("lies.parquet", events([0, time]))]
    with pytest.raises(BadObject, match="its statistics say") as caught:
        folder.merge(folder.spec(files))
    assert (caught.value.object_name, caught.value.section) == ("lies.parquet", "column at")


def test_a_file_that_was_registered_otherwise_or_is_gone_is_refused(folder: TableFolder) -> None:
    file = folder.put("a.parquet", events([1, 2]))
    with pytest.raises(BadObject, match="3 were registered"):
        folder.merge(folder.spec([replace(file, rows=3)]))
    with pytest.raises(BadObject):
        folder.merge(folder.spec([replace(file, size=file.size + 1)]))
    with pytest.raises(StorageError):
        folder.merge(folder.spec([replace(file, path="b.parquet")]))


@pytest.mark.parametrize("listed", [False, True])
def test_a_few_bytes_that_promise_too_much_are_refused(
    folder: TableFolder, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of times the same ten thousand bytes."""
    monkeypatch.setattr(file_rows, "ROW_BYTES_MAX", 8 << 20)
    monkeypatch.setattr(file_rows, "NESTED_BYTES_MAX", 16 << 20)
    count, text = 10_000, "y" * 10_000
    words = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), [text])
    cells = pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), words) if listed else words
    file = folder.put("a.parquet", pa.table({"at": pa.array([0] * count, US), "x": cells}), store_schema=False)
    assert file.size < 1 << 17
    with pytest.raises(BadObject, match="expand"):
        folder.merge(folder.spec([file]))


def test_nested_columns_cannot_be_sorted_by(folder: TableFolder) -> None:
    with pytest.raises(MergeRefused, match="column x"):
        folder.merge(folder.spec([folder.put("a.parquet", events([1], x=[[1]]))], sort_columns=("x",)))


def test_a_cancelled_merge_ends_and_leaves_nothing(folder: TableFolder) -> None:
    files = [folder.put(f"{n}.parquet", random_table(n, 2000, True)) for n in range(4)]
    spec, asked = folder.spec(files[:2], files[2:], target_bytes=20_000), iter([False] * 9)
    with pytest.raises(MergeCancelled):
        merge_job.run(spec, folder.store, scratch=folder.path.parent / "s", cancelled=lambda: next(asked, True))
    assert folder.files() == [file.path for file in files]
    assert not [path for path in (folder.path.parent / "s").rglob("*") if path.is_file() and path.suffix == ".parquet"]


def test_what_a_merge_loses_it_does_not_report(folder: TableFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    real = folder_merge.merge_windows
    monkeypatch.setattr(folder_merge, "merge_windows", lambda windows: (table.slice(1) for table in real(windows)))
    with pytest.raises(NotConserved, match="3 rows read, 2 rows written"):
        folder.merge(folder.spec([folder.put("a.parquet", events([1, 2, 3]))]))
    monkeypatch.setattr(
        folder_merge, "merge_windows", lambda windows: (table.take([0, 0, 2]) for table in real(windows))
    )
    with pytest.raises(NotConserved, match="differ from the rows read"):
        folder.merge(folder.spec([folder.put("a.parquet", events([1, 2, 3]))]))
    assert folder.files() == ["a.parquet"]


def test_progress_counts_the_bytes_of_sources(folder: TableFolder) -> None:
    files = [folder.put(f"{n}.parquet", events([n // 2 * DAY_MS * 1000])) for n in range(3)]
    told: list[tuple[int, int]] = []
    merge_job.run(
        folder.spec(files[:2], files[2:]),
        folder.store,
        scratch=folder.path.parent / "s",
        progress=lambda progress: told.append((progress.done, progress.total)),
    )
    total = sum(file.size for file in files)
    assert told == [(files[0].size, total), (files[0].size + files[1].size, total), (total, total)]


def test_duckdb_reads_what_was_written(folder: TableFolder) -> None:
    files = [folder.put(f"{n}.parquet", random_table(n, 500, False)) for n in range(3)]
    before = duckdb.sql(f"select * from read_parquet('{folder.path}/*.parquet') order by all").fetchall()
    result = folder.merge(folder.spec(files, sort_columns=("name",)))
    paths = [str(folder.path / file.path) for file in result.outputs]
    assert duckdb.sql(f"select * from read_parquet({paths}) order by all").fetchall() == before


def test_sums_of_folders_are_added_exactly(folder: TableFolder) -> None:
    def file(name: str, money: str, kind: pa.DataType) -> TableFile:
        return folder.put(name, events([1]).append_column("m", pa.array([Decimal(money)], kind)))

    files = [file("r=1/a.parquet", "-1.5", pa.decimal128(9, 1)), file("r=2/a.parquet", "0.25", pa.decimal128(9, 2))]
    assert folder.merge(folder.spec(files)).chunks[0].sums == {"m": "-1.25"}
