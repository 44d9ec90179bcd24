"""Folders and files of Delta Lake, Iceberg and Hudi tables are recognised wherever the table's root lies."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.formats.parquet.errors import ForeignFile
from engine.lanes.tables.plain import foreign_formats
from engine.lanes.tables.plain.facts import read_facts
from engine.lanes.tables.plain.foreign_formats import (
    FolderUnchecked,
    ForeignTable,
    TableFormat,
    check_contents,
    check_place,
)
from engine.storage import ObjectStore, open_store
from tests.file_s3 import running_file_s3
from tests.object_stores import S3Server, s3_credentials

__all__ = ["s3_credentials"]

SIGNS = [
    ("_delta_log/00000000000000000000.json", TableFormat.DELTA, "_delta_log/"),
    ("_delta_log/00000000000000000005.checkpoint.parquet", TableFormat.DELTA, "_delta_log/"),
    (".hoodie/hoodie.properties", TableFormat.HUDI, ".hoodie/"),
    (".hoodie_partition_metadata", TableFormat.HUDI, ".hoodie_partition_metadata"),
    ("metadata/00001-5f0a.metadata.json", TableFormat.ICEBERG, "metadata/00001-5f0a.metadata.json"),
    ("metadata/v3.gz.metadata.json", TableFormat.ICEBERG, "metadata/v3.gz.metadata.json"),
    ("metadata/v3.metadata.json.gz", TableFormat.ICEBERG, "metadata/v3.metadata.json.gz"),
    ("metadata/version-hint.text", TableFormat.ICEBERG, "metadata/version-hint.text"),
]
PLAIN = ["metadata/notes.json", "metadata/deep/v1.metadata.json", "delta_log/0.json", "hoodie/x", "v1.metadata.json"]


@pytest.fixture(scope="module")
def endpoint(s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server that answers out of a folder."""
    with running_file_s3(tmp_path_factory.mktemp("s3")) as (server, _):
        yield server


@pytest.fixture
def base(request: pytest.FixtureRequest, tmp_path: Path, endpoint: S3Server) -> str:
    """The URL of an empty folder or bucket, with a place for a folder in it."""
    return tmp_path.as_uri() + "/{}" if request.param == "folder" else endpoint.store_url(f"b-{uuid4().hex}", "{}")


def at(base: str, folder: str) -> ObjectStore:
    return open_store(base.format(folder))


@pytest.mark.slow
@pytest.mark.parametrize("base", ["folder", "bucket"], indirect=True)
def test_a_table_is_found_from_its_own_folder_and_from_any_below(base: str) -> None:
    top, place = at(base, ""), at(base, "lake/db/events")
    for root, (key, kind, sign) in itertools.product(["lake/db/events/", "lake/db/", "lake/", ""], SIGNS):
        top.put(root + key, b"{}")
        with pytest.raises(ForeignTable) as caught:
            check_place(place)
        assert (caught.value.format, caught.value.sign) == (kind, sign)
        assert caught.value.root == url_of(top, root)
        assert str(kind) in str(caught.value)
        assert foreign_formats.MAINTENANCE[kind] in str(caught.value)
        top.delete(root + key)
    assert check_place(place) == ()


@pytest.mark.slow
@pytest.mark.parametrize("base", ["folder", "bucket"], indirect=True)
def test_a_table_is_found_within_a_folder(base: str) -> None:
    store = at(base, "lake")
    for key, kind, sign in SIGNS:
        check_contents(store)
        store.put(f"db/events/{key}", b"{}")
        assert check_place(store) == ()
        with pytest.raises(ForeignTable) as listed:
            check_contents(store)
        with pytest.raises(ForeignTable) as probed:
            check_place(store, ["plain/a.parquet", "db/events/day=1/part-0.parquet"])
        for caught in (listed.value, probed.value):
            assert (caught.format, caught.sign, caught.root) == (kind, sign, url_of(store, "db/events"))
        store.delete(f"db/events/{key}")


def url_of(store: ObjectStore, folder: str) -> str:
    return f"{store.url.partition('?')[0].rstrip('/')}/{folder}".rstrip("/")


@pytest.mark.parametrize("base", ["folder", "bucket"], indirect=True)
def test_other_files_and_folders_are_plain(base: str) -> None:
    store = at(base, "lake")
    for key in PLAIN:
        store.put(key, b"{}")
        store.put(f"deeper/{key}", b"{}")
    check_contents(store)
    assert check_place(store, [f"deeper/{key}" for key in PLAIN]) == ()
    assert check_place(at(base, "lake/deeper")) == ()


def test_an_empty_log_folder_is_a_table_too(tmp_path: Path) -> None:
    (tmp_path / "events" / "_delta_log").mkdir(parents=True)
    with pytest.raises(ForeignTable, match="Delta Lake"):
        check_place(open_store(str(tmp_path / "events" / "day=1")))


def test_of_two_formats_the_writer_is_named(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("metadata/v1.metadata.json", b"{}")
    store.put("_delta_log/00000000000000000000.json", b"{}")
    with pytest.raises(ForeignTable, match="Delta Lake"):
        check_place(store)


def test_a_folder_with_too_many_objects_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_formats, "METADATA_KEYS_MAX", 3)
    store = open_store(str(tmp_path / "events"))
    for number in range(3):
        store.put(f"metadata/{number}.txt", b"")
    assert check_place(store) == ()
    store.put("metadata/3.txt", b"")
    inner = open_store(str(tmp_path / "events" / "day=1"))
    [unchecked] = check_place(inner)
    assert unchecked.url == store.url
    assert "more than 3 objects" in str(unchecked)
    with pytest.raises(FolderUnchecked, match="more than 3 objects"):
        check_place(store)
    with pytest.raises(FolderUnchecked, match="the folder events/ of the table could not be checked"):
        check_place(open_store(str(tmp_path)), ["events/a.parquet"])


@pytest.mark.parametrize("name", ["version-hint.text", "v12.metadata.json"])
def test_iceberg_is_recognised_behind_any_number_of_other_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(foreign_formats, "METADATA_KEYS_MAX", 3)
    store = open_store(str(tmp_path / "events"))
    for number in range(9):
        store.put(f"metadata/snap-{number}.avro", b"")
    store.put(f"metadata/{name}", b"")
    with pytest.raises(ForeignTable, match="Apache Iceberg"):
        check_place(store)


@pytest.mark.slow
def test_a_refused_listing_of_a_parent_is_reported(s3_credentials: None, tmp_path: Path) -> None:
    with running_file_s3(tmp_path, listed_below="lake/db/events/") as (server, _):
        store = at(server.store_url("bucket", "{}"), "lake/db/events")
        store.put("day=1/a.parquet", b"")
        unchecked = check_place(store, ["day=1/a.parquet"])
        assert [one.url for one in unchecked] == ["s3://bucket/lake/db", "s3://bucket/lake", "s3://bucket"]
        assert all("AccessDenied" in one.reason for one in unchecked)
        store.put("_delta_log/00000000000000000000.json", b"{}")
        with pytest.raises(ForeignTable, match="Delta Lake table at s3://bucket/lake/db/events "):
            check_place(store)


def footer_file(metadata: dict[bytes, bytes], column: str = "id") -> bytes:
    table = pa.table({"ts": pa.array([0], pa.timestamp("ms")), column: pa.array(["a"])})
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), buffer)
    return buffer.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (footer_file({b"iceberg.schema": b"{}"}), TableFormat.ICEBERG),
        (footer_file({}, "_hoodie_commit_time"), TableFormat.HUDI),
        (footer_file({b"hoodie_min_record_key": b"a"}), TableFormat.HUDI),
    ],
)
def test_a_footer_that_names_its_format_is_refused(tmp_path: Path, data: bytes, kind: TableFormat) -> None:
    store = open_store(str(tmp_path))
    store.put("a.parquet", data)
    with pytest.raises(ForeignFile, match=f"a file of {kind}") as caught:
        read_facts(store, "a.parquet", time_column="ts")
    assert caught.value.object_name == "a.parquet"
    store.put("b.parquet", footer_file({b"writer": b"any"}, "hoodie"))
    assert read_facts(store, "b.parquet", time_column="ts").rows == 1
