"""The files of a table in folders key=value: what Spark writes is found, what readers pass over is not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from engine.lanes.tables.plain.hive import NO_VALUE, BadPartition, check_partition, find_files, is_ignored, partition_of
from engine.storage import ObjectStore, open_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


def test_files_are_listed_with_their_partition_in_path_order(store: ObjectStore) -> None:
    for key in ("dt=2024-02-01/region=eu/b.parquet", "a.parquet", f"dt={NO_VALUE}/region=a%2Fb%20c/c.parquet", "x/d"):
        store.put(key, b"data")
    found = list(find_files(store))
    assert [(file.path, file.partition) for file in found] == [
        ("a.parquet", ()),
        ("dt=2024-02-01/region=eu/b.parquet", (("dt", "2024-02-01"), ("region", "eu"))),
        (f"dt={NO_VALUE}/region=a%2Fb%20c/c.parquet", (("dt", None), ("region", "a/b c"))),
        ("x/d", ()),
    ]
    assert {file.size for file in found} == {4}
    assert [file.path for file in find_files(store, start_after="a.parquet")] == [file.path for file in found[1:]]


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("a.parquet", False),
        ("_SUCCESS", True),
        (".hidden.parquet", True),
        ("_lithify/current.json", True),
        ("dt=1/_temporary/0/a.parquet", True),
        ("dt=1/.spark-staging-1/a.parquet", True),
        ("_part=1/a.parquet", False),
        ("dt=1/a_b.parquet", False),
    ],
)
def test_names_with_an_underscore_or_a_dot_in_front_are_passed_over(path: str, ignored: bool) -> None:
    assert is_ignored(path) == ignored


def test_progress_is_reported_on_the_way_and_at_the_end(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.lanes.tables.plain.hive.PROGRESS_STEP", 2)
    for name in ("_1", "a", "b"):
        store.put(name, b"")
    told: list[tuple[int, str]] = []
    list(find_files(store, progress=lambda seen, key: told.append((seen, key))))
    assert told == [(2, "a"), (3, "b")]


def test_what_pyarrow_writes_as_a_hive_table_is_understood(store: ObjectStore, tmp_path: Path) -> None:
    table = pa.table({"name": ["a=b", "ü/x", None, "%41"], "x": [1, 2, 3, 4]})
    ds.write_dataset(table, tmp_path, format="parquet", partitioning=["name"], partitioning_flavor="hive")
    assert {file.partition for file in find_files(store)} == {
        (("name", value),) for value in ("a=b", "ü/x", None, "%41")
    }


def test_a_path_unlike_the_others_is_refused(store: ObjectStore) -> None:
    for key in ("dt=1/a", "dt=1/dt=2/a", "region=1/a"):
        store.put(key, b"")
    good, twice, other = find_files(store)
    assert check_partition(good, None) == ("dt",)
    for file in (twice, other):
        with pytest.raises(BadPartition, match=file.path.partition("/")[0]):
            check_partition(file, ("dt",))


def test_a_plain_folder_names_no_partition() -> None:
    assert partition_of("2024/02/a.parquet") == ()
    assert partition_of("=x/a") == ()
