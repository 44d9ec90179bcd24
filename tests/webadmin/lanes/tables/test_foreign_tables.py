"""A table of Delta Lake, Apache Iceberg or Apache Hudi is neither adopted nor rescanned nor registered, nor cleaned."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError

from engine.lanes.tables.plain.foreign_formats import ForeignTable
from engine.storage import ObjectStore, open_store
from tests.file_s3 import running_file_s3
from tests.object_stores import s3_credentials
from tests.webadmin.hostile.conftest import Caller
from tests.webadmin.lanes.tables.conftest import CONTEXT, World
from tests.webadmin.lanes.tables.fake_node import digest_of
from tests.webadmin.lanes.tables.parquet_files import day, put_hours, put_rows, rows_at
from tests.webadmin.lanes.tables.test_adoption import adopt, run
from tests.webadmin.service import Service
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.tables.models import BadFile, DataSource, Segment
from webadmin.lanes.tables.services.adopt_table import adopt_table, rescan_table
from webadmin.lanes.tables.services.clean_table import clean_table
from webadmin.lanes.tables.services.read_files import OfferedFile
from webadmin.lanes.tables.services.sources import NewTable
from webadmin.lanes.tables.services.take_files import take_files
from webadmin.lanes.tables.states import RegistrationMode, SegmentState

__all__ = ["s3_credentials"]

FILE_A = {"why": "x", "files": [{"path": "a.parquet"}]}
DELTA_LOG = "_delta_log/00000000000000000000.json"
SAMPLES = {
    "Apache Iceberg": [
        *("pyiceberg_replaced", "v2_equality_deletes", "v2_partition_evolution", "v2_position_deletes"),
        *("v2_schema_evolution", "v2_sorted_branches", "v3_default_values", "v3_deletion_vectors"),
    ],
    "Delta Lake": [
        *("checkpointed", "column_mapping", "deletion_vectors", "partitioned", "row_tracking", "v2_checkpoint"),
    ],
}
FOLDERS = {"Apache Iceberg": "iceberg", "Delta Lake": "delta"}


@pytest.mark.foreign_data
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in SAMPLES.items() for name in names])
def test_a_real_table_is_refused_from_every_folder_and_stays_as_it_is(
    service: Service, foreign_data: Path, tmp_path: Path, kind: str, name: str
) -> None:
    sample = tmp_path / "lake" / name
    shutil.copytree(foreign_data / "tables" / FOLDERS[kind] / name, sample)
    lake = open_store(str(tmp_path / "lake"))
    before = digest_of(lake)
    places = [tmp_path, sample.parent, sample, *(path for path in sample.rglob("*") if path.is_dir())]
    assert len(places) > 3
    for place in places:
        for words in ((), ("--dry-run",)):
            with pytest.raises(CommandError, match=f"there is a {kind} table at {sample.as_uri()} ") as caught:
                adopt(open_store(str(place)), *words)
            assert "Use a folder that neither is nor contains nor lies in" in str(caught.value)
    assert digest_of(lake) == before
    assert not DataSource.objects.exists()


@pytest.mark.foreign_data
def test_real_files_without_their_table_are_left_out_by_their_footer(
    service: Service, foreign_data: Path, store: ObjectStore
) -> None:
    service.clock.now_ms = day(60)
    data = foreign_data / "tables/iceberg/v2_position_deletes/data"
    files = sorted(data.rglob("*.parquet"))
    assert len(files) == 10
    for file in files:
        store.put(file.relative_to(data).as_posix(), file.read_bytes())
    store.put("plain.parquet", plain_copy(files[0]))
    said = adopt(store)
    assert "10 foreign_table, 1 registered" in said
    assert "a file of Apache Iceberg: its footer has the key iceberg.schema" in said
    assert Segment.objects.get().path == "plain.parquet"
    assert BadFile.objects.filter(error_class="ForeignFile").count() == 10


def plain_copy(path: Path) -> bytes:
    """Return a file's rows without what Iceberg wrote beside them."""
    buffer = io.BytesIO()
    pq.write_table(pq.read_table(path, partitioning=None).replace_schema_metadata(None), buffer)
    return buffer.getvalue()


@pytest.fixture
def caller(service: Service, settings: Any, tmp_path: Path) -> Caller:
    service.clock.now_ms = day(60)
    settings.TABLES_URL = tmp_path.as_uri()
    return Caller("tables:read", "tables:write", "tenant:acme")


def post_table(caller: Caller, url: str) -> Any:
    return caller.post("/api/v1/tables/acme", {"why": "x", "name": "events", "url": url, "time_column": "ts"})


def post_files(caller: Caller, *paths: str) -> Any:
    files = [{"path": path} for path in paths]
    return caller.post("/api/v1/tables/acme/events/segments", {"why": "x", "files": files})


def test_a_tenant_creates_no_table_in_one(caller: Caller, tmp_path: Path) -> None:
    open_store(str(tmp_path / "acme")).put(DELTA_LOG, b"{}")
    answer = post_table(caller, (tmp_path / "acme/events").as_uri())
    assert (answer.status_code, answer.json()["code"]) == (409, "foreign_table")
    assert "Delta Lake" in answer.json()["message"]
    assert not DataSource.objects.exists()


@pytest.mark.parametrize("folder", ["acme", "acme/events", "acme/events/lake", "acme/events/lake/db"])
def test_a_tenant_registers_no_file_of_one(caller: Caller, tmp_path: Path, folder: str) -> None:
    lake = open_store(str(tmp_path / "acme" / "events"))
    assert post_table(caller, lake.url).status_code == 200
    put_rows(lake, "plain.parquet", [day(0)])
    put_rows(lake, "lake/db/day=1/part-0.parquet", [day(0)])
    told = post_files(caller, "plain.parquet").json()
    assert [file["status"] for file in told["files"]] == ["registered"]
    assert told["unchecked"] == []
    open_store(str(tmp_path / folder)).put(DELTA_LOG, b"{}")
    answer = post_files(caller, "lake/db/day=1/part-0.parquet")
    assert (answer.status_code, answer.json()["code"]) == (409, "foreign_table")
    assert f"there is a Delta Lake table at {folder} of TABLES_URL " in answer.json()["message"]
    operator = Caller("tables:read", "tables:write", "operate", "tenant:*", name="operator")
    assert (tmp_path / folder).as_uri() in post_files(operator, "lake/db/day=1/part-0.parquet").json()["message"]
    assert Segment.objects.get().path == "plain.parquet"
    table = DataSource.objects.get()
    assert table.is_paused
    assert "Delta Lake" in table.refusal


def test_only_operators_are_shown_folders_of_the_server(
    service: Service, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder above TABLES_URL that cannot be checked, one that is a Delta Lake table, and a table elsewhere."""
    service.clock.now_ms = day(60)
    settings.TABLES_URL, settings.STORE_ROOTS = (tmp_path / "tables").as_uri(), [tmp_path.as_uri()]
    monkeypatch.setattr("engine.lanes.tables.plain.foreign_formats.METADATA_KEYS_MAX", 1)
    above = open_store(str(tmp_path))
    for key in ("metadata/1", "metadata/2"):
        above.put(key, b"")
    callers = {
        "operator": Caller("tables:read", "tables:write", "operate", "tenant:*", name="operator"),
        "tenant": Caller("tables:read", "tables:write", "tenant:acme", name="tenant"),
    }
    elsewhere = open_store(str(tmp_path / "adopted"))
    body = {"why": "x", "name": "adopted", "url": elsewhere.url, "time_column": "ts"}
    assert callers["operator"].post("/api/v1/tables/acme", body).status_code == 200
    lake = open_store(str(tmp_path / "tables/acme/events"))
    put_rows(lake, "a.parquet", [day(0)])
    assert post_table(callers["tenant"], lake.url).json()["url"] == lake.url, "it writes files there"
    told: dict[str, list[str]] = {}
    for name, caller in callers.items():
        told[name] = [
            *caller.post("/api/v1/tables/acme/events/segments", FILE_A | {"dry_run": True}).json()["unchecked"],
            caller.send("get", "/api/v1/tables/acme/adopted").json()["url"],
            caller.post("/api/v1/tables/acme", body | {"url": (tmp_path / "tables/acme/x").as_uri()}).json()["message"],
        ]
    above.put(DELTA_LOG, b"{}")
    for name, caller in callers.items():
        told[name] += [
            caller.post("/api/v1/tables/acme/events/segments", FILE_A).json()["message"],
            post_table(caller, (tmp_path / "tables/acme/y").as_uri() + f"/{name}").json()["message"],
            *[row["refusal"] for row in caller.send("get", "/api/v1/tables/acme").json()["tables"] if row["refusal"]],
        ]
    assert [len(texts) for texts in told.values()] == [6, 6]
    assert all(str(tmp_path) in text for text in told["operator"])
    assert not any(str(tmp_path) in text for text in told["tenant"])
    assert told["tenant"][0].startswith("a folder above TABLES_URL could not be checked")
    assert told["tenant"][1] == "a folder outside of the tenant's place"
    assert "there is a Delta Lake table at a folder above TABLES_URL (it has" in told["tenant"][3]


def test_a_registered_file_of_one_is_refused_by_its_footer(caller: Caller, tmp_path: Path) -> None:
    lake = open_store(str(tmp_path / "acme" / "events"))
    post_table(caller, lake.url)
    buffer = io.BytesIO()
    pq.write_table(rows_at([day(0)]).replace_schema_metadata({"iceberg.schema": "{}"}), buffer)
    lake.put("a.parquet", buffer.getvalue())
    [file] = post_files(caller, "a.parquet").json()["files"]
    assert (file["status"], file["code"]) == ("refused", "foreign_table")
    assert "Apache Iceberg" in file["message"]


def test_a_folder_that_was_converted_is_neither_rescanned_nor_released(world: World) -> None:
    [path] = put_hours(world.store, 0, hours=[0])
    world.add(path)
    world.store.put(DELTA_LOG, b"{}")
    with pytest.raises(ForeignTable):
        rescan_table(world.table, world.store, context=CONTEXT)
    table = DataSource.objects.get()
    assert (table.is_paused, table.sequence) == (True, 1)
    assert "Delta Lake" in AuditEntry.objects.filter(action="alter_table").latest("id").detail["why"]
    with pytest.raises(ForeignTable):
        take_files(
            world.table, world.store, [OfferedFile(path="b.parquet")], mode=RegistrationMode.APPEND, context=CONTEXT
        )


def test_no_replaced_file_is_deleted_of_a_folder_that_was_converted(world: World) -> None:
    """Tables that an earlier version adopted, and those that were made another format's since then."""
    world.add(*put_hours(world.store, 0, hours=range(12)))
    world.work_off()
    world.publish()
    world.service.clock.advance(3 * 3_600_000)
    before = digest_of(world.store)
    world.store.put(DELTA_LOG, b"{}")
    with pytest.raises(ForeignTable):
        clean_table(world.table, world.store)
    world.store.delete(DELTA_LOG)
    assert digest_of(world.store) == before
    assert Segment.objects.filter(state=SegmentState.REPLACED).count() == 12
    assert DataSource.objects.get().is_paused
    assert clean_table(world.table, world.store).files == 12, "it is not one any more"


def test_a_refused_listing_of_a_parent_is_reported(service: Service, s3_credentials: None, tmp_path: Path) -> None:
    service.clock.now_ms = day(60)
    with running_file_s3(tmp_path, listed_below="lake/events/") as (server, _):
        store = open_store(server.store_url("bucket", "lake/events"))
        put_rows(store, "a.parquet", [day(0)])
        said = adopt(store)
        assert "1 registered" in said
        assert "unchecked: s3://bucket/lake could not be checked" in said
        assert "AccessDenied" in said
        assert "unchecked: s3://bucket could not be checked" in said
        [entry] = AuditEntry.objects.filter(action="create_table")
        assert len(entry.detail["unchecked"]) == 2
        put_rows(store, "b.parquet", [day(1)])
        table = DataSource.objects.get()
        taken = take_files(table, store, [OfferedFile(path="b.parquet")], mode=RegistrationMode.APPEND, context=CONTEXT)
        assert len(taken.unchecked) == 2
        assert "unchecked: s3://bucket/lake" in run("rescan", "--table", "events", "--tenant", "acme")
        store.put(DELTA_LOG, b"{}")
        with pytest.raises(ForeignTable):
            adopt_table(NewTable(tenant="acme", name="other", url=store.url, time_column="ts"), store, context=CONTEXT)
