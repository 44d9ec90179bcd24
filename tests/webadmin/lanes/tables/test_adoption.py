"""A folder of Parquet files becomes a table as the how-to says, and DuckDB alone reads exact rows at any moment."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from io import StringIO
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from engine.lanes.tables.merge import merge_job
from engine.storage import ObjectStore, open_store
from tests.webadmin.lanes.tables.conftest import World
from tests.webadmin.lanes.tables.fake_node import FakeNode, digest_of, seen_ids
from tests.webadmin.lanes.tables.parquet_files import HOUR_MS, day, put_rows, put_table, rows_at
from tests.webadmin.service import Service
from webadmin.lanes.tables.models import BadFile, DataSource, Segment
from webadmin.lanes.tables.services.publish_manifest import publish_manifest

HOW_TO = Path(__file__).parents[4] / "docs/how-to/adopt-a-table.md"


def run(*words: str) -> str:
    out = StringIO()
    call_command("tables", *words, stdout=out, stderr=StringIO())
    return out.getvalue()


def adopt(store: ObjectStore, *words: str) -> str:
    return run("adopt", store.url, "--time-column", "ts", "--tenant", "acme", "--name", "events", *words)


@pytest.fixture
def lake(service: Service, store: ObjectStore) -> ObjectStore:
    """Three days in folders, six files each; one file is no Parquet, one has a text where numbers are."""
    service.clock.now_ms = day(60)
    for number in range(3):
        for part in range(6):
            times = [day(number) + part * HOUR_MS + minute * 60_000 for minute in range(10)]
            put_rows(
                store, f"day=2024-02-0{number + 1}/part-{part}.parquet", times, first_id=1000 * number + 100 * part
            )
    store.put("day=2024-02-01/broken.parquet", b"not Parquet, but long enough to look for a footer")
    text = rows_at([day(0)])
    put_table(store, "day=2024-02-02/text.parquet", text.set_column(1, "id", text.column("host")))
    store.put("day=2024-02-01/_SUCCESS", b"")
    return store


def duckdb_ids(store: ObjectStore) -> list[int]:
    """Ask DuckDB what the how-to asks, word by word but for the place and what is selected."""
    [sql] = re.findall(r"```sql\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    place = store.url.removeprefix("file://") + "/"
    assert "'/data/events/'" in sql
    assert "SELECT count(*) FROM" in sql
    sql = sql.replace("'/data/events/'", f"'{place}'").replace("SELECT count(*) FROM", "SELECT id FROM")
    with duckdb.connect() as connection:
        return sorted(row[0] for row in connection.execute(sql).fetchall())


def test_the_commands_of_the_page_work(lake: ObjectStore) -> None:
    """Every command of the page as it is written there, but for the place and the name of a credential."""
    place = lake.url.removeprefix("file://")
    told: list[str] = []
    secret = ""
    for line in shell_lines():
        words = shlex.split(line.replace("/data/events", place))
        if words[:2] == ["./dev", "manage"]:
            told += [run(*words[3:])] if words[2] == "tables" else []
        elif words[0] == "curl":
            told.append(posted([word.replace("$CREDENTIAL", secret) for word in words], lake))
        else:
            command = re.search(r"manage (\w+)([^)]*)", line)
            assert command, line
            credential = StringIO()
            call_command(command[1], *shlex.split(command[2]), stdout=credential)
            secret = credential.getvalue().strip()
    assert "(dry run)" in told[0]
    assert "18 registered" in told[1]
    assert "3 chunks: 18 files" in told[2]
    assert "events" in told[3]
    assert "readers see it" in told[4]
    assert '"status":"registered"' in told[5]
    publish_manifest(DataSource.objects.get(), lake)
    assert len(duckdb_ids(lake)) == 181


def shell_lines() -> list[str]:
    """Return the commands of the page, continued lines joined."""
    blocks = re.findall(r"```sh\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", "").splitlines() if line]


def posted(words: list[str], lake: ObjectStore) -> str:
    """Send what curl would; the file that it registers is there."""
    [url] = [word for word in words if word.startswith("http://")]
    body = words[words.index("-d") + 1]
    for file in json.loads(body)["files"]:
        put_rows(lake, file["path"], [day(1)], first_id=9000)
    authorization = next(word for word in words if word.startswith("Authorization: "))
    answer = Client().post(
        urlsplit(url).path,
        body,
        content_type="application/json",
        headers={"Authorization": authorization.partition(": ")[2]},
    )
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def test_a_dry_run_reads_and_changes_nothing(lake: ObjectStore) -> None:
    before = digest_of(lake)
    said = adopt(lake, "--dry-run")
    assert "18 registered" in said
    assert "broken.parquet" in said
    assert digest_of(lake) == before
    assert not DataSource.objects.exists()


def test_a_lake_is_adopted_merged_and_read_by_duckdb_all_the_while(lake: ObjectStore, service: Service) -> None:
    said = adopt(lake)
    assert "18 registered" in said
    assert sorted(BadFile.objects.values_list("path", "error_class")) == [
        ("day=2024-02-01/broken.parquet", "UnknownFormat"),
        ("day=2024-02-02/text.parquet", "schema_conflict"),
    ]
    rows = duckdb_ids(lake)
    assert len(rows) == 180
    assert rows == seen_ids(lake)
    table = DataSource.objects.get()
    assert table.partition_columns == ["day"]
    assert "3 chunks: 18 files" in run("plan", "--table", "events", "--tenant", "acme", "--dry-run")

    world = World(table, lake, FakeNode(service.worker()), service)
    world.turn()
    specs = world.node.take(10)
    assert specs
    results = [merge_job.run(spec, lake, scratch=Path(lake.url.removeprefix("file://")).parent) for spec in specs]
    assert duckdb_ids(lake) == rows, "outputs lie there, and nobody sees them"
    for spec, result in zip(specs, results, strict=True):
        world.node.worker.poll(world.node.success(spec, result), capacity=0)
    assert duckdb_ids(lake) == rows, "committed, and the pointer has not moved"
    publish_manifest(table, lake)
    assert duckdb_ids(lake) == rows
    assert Segment.objects.filter(state="visible").count() == 3
    assert "0 tasks would rewrite 0 chunks" in run("plan", "--table", "events", "--tenant", "acme", "--dry-run")
    assert world.work_off() == 0


def test_a_rescan_registers_new_files_and_reports_missing_ones(lake: ObjectStore) -> None:
    adopt(lake)
    put_rows(lake, "day=2024-02-05/part-0.parquet", [day(4)], first_id=9000)
    lake.delete("day=2024-02-03/part-5.parquet")
    said = run("rescan", "--table", "events", "--tenant", "acme")
    assert "1 registered" in said
    assert "17 known" in said
    assert "gone: day=2024-02-03/part-5.parquet" in said
    rows = duckdb_ids(lake)
    assert 9000 in rows
    assert len(rows) == 171, "readers see the table without the file that somebody deleted behind its back"
    assert "it is gone" in run("explain", "--table", "events", "--tenant", "acme", "day=2024-02-03/part-5.parquet")
    assert "18 known" in run("rescan", "--table", "events", "--tenant", "acme")


def test_a_folder_that_is_away_altogether_loses_no_file(lake: ObjectStore) -> None:
    adopt(lake)
    folder = Path(lake.url.removeprefix("file://"))
    folder.rename(aside := folder.with_name("aside"))
    folder.mkdir()
    assert "the pointer is gone" in run("rescan", "--table", "events", "--tenant", "acme")
    assert Segment.objects.filter(state="visible").count() == 18
    shutil.rmtree(folder)
    aside.rename(folder)
    assert len(duckdb_ids(lake)) == 180


def test_a_file_that_is_repaired_with_other_rows_is_read_anew(lake: ObjectStore) -> None:
    adopt(lake)
    path = "day=2024-02-03/part-5.parquet"
    lake.delete(path)
    run("rescan", "--table", "events", "--tenant", "acme")
    assert "released 0 of 1" in run("release", "--table", "events", "--tenant", "acme", path), "it is still gone"
    put_rows(lake, path, [day(2), day(2) + 5], first_id=7000)
    assert "released 1 of 1" in run("release", "--table", "events", "--tenant", "acme", path)
    publish_manifest(DataSource.objects.get(), lake)
    assert duckdb_ids(lake)[-2:] == [7000, 7001]
    assert seen_ids(lake) == duckdb_ids(lake)


def test_a_bad_file_is_explained_and_let_in_once_it_is_repaired(lake: ObjectStore) -> None:
    adopt(lake)
    path = "day=2024-02-01/broken.parquet"
    assert "cannot be read" in run("explain", "--table", "events", "--tenant", "acme", path)
    put_rows(lake, path, [day(0)], first_id=5000)
    assert "released 1 of 1" in run("release", "--table", "events", "--tenant", "acme", path)
    assert "1 registered" in run("rescan", "--table", "events", "--tenant", "acme")
    assert 5000 in duckdb_ids(lake)
    assert "readers see it" in run("explain", "--table", "events", "--tenant", "acme", path)


def test_a_folder_with_another_partition_is_left_out_with_the_reason(lake: ObjectStore) -> None:
    put_rows(lake, "zone=eu/part-0.parquet", [day(0)])
    assert "day=… is expected" in adopt(lake)


def test_status_and_unknown_tables(lake: ObjectStore) -> None:
    adopt(lake)
    told = json.loads(run("status", "--json"))
    assert [(each["table"], each["bad_files"], each["unpublished"]) for each in told["tables"]] == [("events", 2, 0)]
    assert "events" in run("status")
    with pytest.raises(CommandError, match="no table"):
        run("plan", "--table", "nothing")
    with pytest.raises(CommandError, match="no file"):
        run("explain", "--table", "events", "--tenant", "acme", "nothing.parquet")


def test_a_lake_in_another_time_zone_has_its_days(service: Service, store: ObjectStore) -> None:
    service.clock.now_ms = day(60)
    put_rows(store, "a.parquet", [day(0) - HOUR_MS])
    adopt(open_store(store.url), "--timezone", "Europe/Berlin")
    assert Segment.objects.get().start_ms == day(0) - HOUR_MS, "midnight in Berlin"


def test_links_below_the_folder_are_left_out_and_counted(lake: ObjectStore, tmp_path: Path) -> None:
    folder = Path(urlsplit(lake.url).path)
    (folder / "day=2024-02-01" / "part-9.parquet").symlink_to(folder / "day=2024-02-01" / "part-0.parquet")
    (folder / "day=2024-02-04").symlink_to(folder / "day=2024-02-03")
    told = adopt(lake)
    assert "20 files below" in told
    assert "left out: 2 links and special files" in told
    assert not Segment.objects.filter(path__contains="part-9").exists()
