"""Tables over HTTP: a writer's way from an empty folder to merged files, and the errors for hostile callers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.storage import ObjectStore, open_store
from tests.webadmin.hostile.conftest import Caller
from tests.webadmin.lanes.tables.parquet_files import day, put_hours, put_rows
from tests.webadmin.service import Service
from webadmin.lanes.tables.models import BadFile, Chunk, ChunkOverride, DataSource, Segment
from webadmin.lanes.tables.services.run_cycle import run_source_cycle
from webadmin.lanes.tables.states import SegmentState

WHY = {"why": "a test"}
TABLE = "/api/v1/tables/acme/events"


@pytest.fixture
def caller(service: Service, settings: Any, tmp_path: Path) -> Caller:
    service.clock.now_ms = day(60)
    settings.TABLES_URL = tmp_path.as_uri()
    return Caller("tables:read", "tables:write", "tenant:acme")


@pytest.fixture
def lake(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "acme" / "events"))


def create(caller: Caller, url: str, **more: Any) -> Any:
    return caller.post("/api/v1/tables/acme", WHY | {"name": "events", "url": url, "time_column": "ts"} | more)


def test_a_writer_creates_fills_and_watches_a_table(caller: Caller, lake: ObjectStore) -> None:
    answer = create(caller, lake.url, policy={"granularity": "day", "segment_bytes_max": 10**8})
    assert (answer.status_code, answer.json()["policy"]["segment_bytes_max"]) == (200, 10**8)
    files = [{"path": path, "size": lake.head(path).size} for path in put_hours(lake, 0)]
    told = caller.post(f"{TABLE}/segments", WHY | {"files": [*files, {"path": "missing.parquet"}]}).json()
    assert [file["status"] for file in told["files"]] == ["registered"] * 24 + ["refused"]
    assert told["files"][-1]["code"] == "object_not_found"
    assert (told["start_ms"], told["end_ms"], told["sequence"]) == (day(0), day(1), 1)
    run_source_cycle(DataSource.objects.get())
    [chunk] = caller.send("get", f"{TABLE}/chunks").json()["chunks"]
    assert (chunk["state"], chunk["segments"]) == ("unstable", 24)
    [task] = caller.send("get", f"{TABLE}/tasks?state=open").json()["tasks"]
    assert (task["job_state"], task["chunks"]) == ("waiting", 1)
    page = caller.send("get", f"{TABLE}/segments?after={Segment.objects.order_by('id')[20].id}").json()
    assert len(page["segments"]) == 3
    changed = caller.post(TABLE, WHY | {"policy": {"granularity": "week"}, "is_paused": True}).json()["changed"]
    assert changed == {"granularity": "week", "is_paused": True}
    put_rows(lake, "new.parquet", [day(5)])
    stretch = {"start_ms": day(4), "end_ms": day(11)}
    told = caller.post(f"{TABLE}/segments", WHY | stretch | {"mode": "replace", "files": [{"path": "new.parquet"}]})
    assert told.json()["files"][0]["status"] == "registered"
    assert caller.post(f"{TABLE}/drop", WHY | stretch).json()["replaced"] == 1
    assert [table["name"] for table in caller.send("get", "/api/v1/tables/acme").json()["tables"]] == ["events"]


def test_orders_about_chunks_are_given_listed_and_taken_back(caller: Caller, lake: ObjectStore) -> None:
    create(caller, lake.url)
    stretch = WHY | {"start_ms": day(0) + 1, "end_ms": day(2)}
    caller.post(f"{TABLE}/segments", WHY | {"files": [{"path": path} for path in put_hours(lake, 0)]})
    dry = caller.post(f"{TABLE}/overrides", stretch | {"kind": "never", "dry_run": True}).json()
    counts = {"chunks": 2, "segments": 0, "bytes": 0}
    assert dry == counts | {"dry_run": True, "table": "acme/events", "start_ms": day(0), "end_ms": day(2)}
    assert caller.send("get", f"{TABLE}/overrides").json() == {"overrides": []}
    caller.post(f"{TABLE}/overrides", stretch | {"kind": "never"})
    [given] = caller.send("get", f"{TABLE}/overrides?state=in_force&start_ms={day(1)}").json()["overrides"]
    assert (given["kind"], given["actor"], given["why"]) == ("never", "credential:caller", "a test")
    assert run_source_cycle(DataSource.objects.get()).created == []
    assert caller.post(f"{TABLE}/overrides/end", stretch | {"kind": "now"}).json()["changed"] == 0
    assert caller.post(f"{TABLE}/overrides/end", stretch).json() == {"dry_run": False, "changed": 1}
    assert caller.send("get", f"{TABLE}/overrides?state=in_force").json()["overrides"] == []
    [ended] = caller.send("get", f"{TABLE}/overrides?state=ended").json()["overrides"]
    assert ended["ended_because"] == "credential:caller: a test"
    caller.post(f"{TABLE}/overrides", stretch | {"kind": "now"})
    assert len(run_source_cycle(DataSource.objects.get()).created) == 1
    [task] = caller.send("get", f"{TABLE}/tasks").json()["tasks"]
    assert task["priority"] == 1_000_000


def test_what_failed_is_tried_again_and_what_was_repaired_comes_in(caller: Caller, lake: ObjectStore) -> None:
    create(caller, lake.url)
    good, bad = put_hours(lake, 0, hours=[1, 5])
    caller.post(f"{TABLE}/segments", WHY | {"files": [{"path": good}, {"path": bad}]})
    table = DataSource.objects.get()
    Chunk.objects.update(is_quarantined=True, quarantine_reason="it always fails")
    stretch = WHY | {"start_ms": day(0), "end_ms": day(1)}
    assert caller.post(f"{TABLE}/retry", stretch | {"dry_run": True}).json() == {"dry_run": True, "changed": 1}
    assert caller.post(f"{TABLE}/retry", stretch).json()["changed"] == 1
    assert caller.post(f"{TABLE}/retry", stretch).json()["changed"] == 0
    segment = Segment.objects.get(path=bad)
    Segment.objects.filter(id=segment.id).update(state=SegmentState.QUARANTINED)
    told = {"error_class": "BadObject", "message": "no rows", "place": "row group 0", "at_ms": 1}
    BadFile.objects.create(source=table, path=bad, segment=segment, **told)
    [file] = caller.send("get", f"{TABLE}/bad-files?state=kept_out").json()["files"]
    assert (file["path"], file["place"], file["segment"]) == (bad, "row group 0", segment.id)
    release = f"{TABLE}/bad-files/release"
    assert caller.post(release, WHY | {"paths": [bad, good], "dry_run": True}).json()["released"] == [bad]
    assert caller.post(release, WHY | {"paths": [bad]}).json() == {"dry_run": False, "released": [bad]}
    [file] = caller.send("get", f"{TABLE}/bad-files?state=released").json()["files"]
    assert file["released_by"] == "credential:caller"
    assert Segment.objects.filter(path=bad).latest("id").state == SegmentState.VISIBLE


@pytest.mark.parametrize(
    ("page", "body", "code"),
    [
        ("overrides", {"kind": "sometimes", "start_ms": 0, "end_ms": 1}, "invalid_message"),
        ("overrides", {"start_ms": 0, "end_ms": 1}, "invalid_message"),
        ("overrides", {"kind": "never", "start_ms": day(1), "end_ms": day(0)}, "interval_refused"),
        ("overrides", {"kind": "never", "start_ms": day(-40_000), "end_ms": day(0)}, "interval_refused"),
        ("overrides/end", {"kind": "sometimes", "start_ms": 0, "end_ms": 1}, "invalid_message"),
        ("retry", {"start_ms": "0", "end_ms": 1}, "invalid_message"),
        ("bad-files/release", {"paths": "all"}, "invalid_message"),
        ("bad-files/release", {"paths": [7]}, "invalid_message"),
        ("bad-files/release", {"paths": ["a\0b"]}, "invalid_message"),
        ("bad-files/release", {"paths": ["a"] * 1001}, "invalid_message"),
    ],
)
def test_what_is_no_override_is_refused_with_the_field(
    caller: Caller, lake: ObjectStore, page: str, body: Any, code: str
) -> None:
    create(caller, lake.url)
    answer = caller.post(f"{TABLE}/{page}", WHY | body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert not ChunkOverride.objects.exists()


@pytest.mark.parametrize(
    "url",
    ["file:///etc", "s3://other/bucket", "{root}/beta/events", "{root}/acme/../beta/x", "{root}/acme", "{root}"],
)
def test_a_tenant_places_tables_in_its_own_folder_only(caller: Caller, tmp_path: Path, url: str) -> None:
    answer = create(caller, url.format(root=tmp_path.as_uri()))
    assert (answer.status_code, answer.json()["code"]) == (400, "table_refused")
    assert not DataSource.objects.exists()


def test_an_operator_places_tables_anywhere(caller: Caller, tmp_path: Path) -> None:
    operator = Caller("tables:write", "operate", "tenant:*", name="operator")
    assert create(operator, (tmp_path / "elsewhere").as_uri()).status_code == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"files": []}, "invalid_message"),
        (WHY, "invalid_message"),
        (WHY | {"files": "all"}, "invalid_message"),
        (WHY | {"files": [{"path": 7}]}, "invalid_message"),
        (WHY | {"files": [{"path": "a\0b"}]}, "invalid_message"),
        (WHY | {"files": [{"path": "a", "size": -1}]}, "invalid_message"),
        (WHY | {"files": [{"path": "a"}] * 1001}, "invalid_message"),
        (WHY | {"files": [], "mode": "merge"}, "invalid_message"),
        (WHY | {"files": [], "mode": "replace"}, "invalid_message"),
        (WHY | {"files": [], "mode": "replace", "start_ms": 1 << 62, "end_ms": 1 << 63}, "invalid_message"),
        ([], "invalid_message"),
    ],
)
def test_what_is_no_registration_is_refused_with_the_field(
    caller: Caller, lake: ObjectStore, body: Any, code: str
) -> None:
    create(caller, lake.url)
    answer = caller.post(f"{TABLE}/segments", body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert not Segment.objects.exists()


@pytest.mark.parametrize("query", ["after=x", "start_ms=1e3", "state=none", "end_ms=" + "9" * 30, "after=-1"])
def test_what_is_no_question_is_refused(caller: Caller, lake: ObjectStore, query: str) -> None:
    create(caller, lake.url)
    for page in ("segments", "chunks", "tasks", "overrides"):
        assert caller.send("get", f"{TABLE}/{page}?{query}").json()["code"] == "invalid_message"


def test_tables_of_others_are_not_there(caller: Caller, lake: ObjectStore) -> None:
    create(caller, lake.url)
    beta = Caller("tables:read", "tables:write", "tenant:beta", name="beta")
    assert beta.send("get", TABLE).json()["code"] == "tenant_not_allowed"
    assert beta.send("get", "/api/v1/tables/beta/events").json()["code"] == "not_found"
    assert Caller("tables:read", name="nobody").send("get", TABLE).json()["code"] == "tenant_not_allowed"
    assert Caller("tables:read", "tenant:acme", name="reader").post(TABLE, WHY).json()["code"] == "scope_missing"


def test_impossible_intervals_have_a_status_of_their_own(caller: Caller, lake: ObjectStore) -> None:
    create(caller, lake.url)
    answer = caller.post(f"{TABLE}/drop", WHY | {"start_ms": day(0) + 1, "end_ms": day(1)})
    assert (answer.status_code, answer.json()["code"]) == (400, "interval_refused")
    answer = caller.post(f"{TABLE}/drop", WHY | {"start_ms": day(-40_000), "end_ms": day(1)})
    assert (answer.status_code, answer.json()["code"]) == (400, "interval_refused")


def test_a_link_to_another_tenants_file_is_not_registered(caller: Caller, lake: ObjectStore, tmp_path: Path) -> None:
    create(caller, lake.url)
    put_rows(open_store(str(tmp_path / "other" / "theirs")), "secret.parquet", [day(0)])
    (tmp_path / "acme" / "events").mkdir(parents=True)
    (tmp_path / "acme" / "events" / "link.parquet").symlink_to(tmp_path / "other" / "theirs" / "secret.parquet")
    (tmp_path / "acme" / "events" / "folder").symlink_to(tmp_path / "other" / "theirs")
    paths = ["link.parquet", "folder/secret.parquet"]
    told = caller.post(f"{TABLE}/segments", WHY | {"files": [{"path": path} for path in paths]}).json()
    assert [(file["status"], file["code"]) for file in told["files"]] == [("refused", "object_not_found")] * 2
    assert all("symbolic link" in file["message"] for file in told["files"])
    assert not Segment.objects.exists()


def test_a_table_whose_folder_became_a_link_reads_nothing(caller: Caller, lake: ObjectStore, tmp_path: Path) -> None:
    create(caller, lake.url)
    put_rows(open_store(str(tmp_path / "other" / "theirs")), "secret.parquet", [day(0)])
    (tmp_path / "acme").mkdir(exist_ok=True)
    (tmp_path / "acme" / "events").symlink_to(tmp_path / "other" / "theirs")
    answer = caller.post(f"{TABLE}/segments", WHY | {"files": [{"path": "secret.parquet"}]})
    told = answer.json()
    assert (answer.status_code, told["code"]) == (503, "folder_unchecked")
    assert "'events' is a symbolic link" in told["message"]
    assert str(tmp_path) not in told["message"]
    assert not Segment.objects.exists()


def test_a_table_is_not_created_where_a_link_leads(caller: Caller, lake: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "other" / "theirs").mkdir(parents=True)
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "events").symlink_to(tmp_path / "other" / "theirs")
    answer = create(caller, lake.url)
    assert (answer.status_code, answer.json()["code"]) == (400, "table_refused")
    assert "symbolic link" in answer.json()["message"]
    assert not DataSource.objects.exists()
