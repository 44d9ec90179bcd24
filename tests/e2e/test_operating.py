"""What pages, commands and REST say of an inherited service in a bad state, as a new operator reads it.

One scene of real processes for all tests: damaged files in every lane, a killed node, two paused tenants.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from engine.schedule.isolation import BAD_SOURCES_MIN
from tests.e2e.operating_scene import BAD_BLOCK, BAD_FILE, LAG_MS_MIN, OperatingScene, now_ms, play
from tests.processes import Processes
from tests.webadmin.lanes.tsdb.fake_bucket import block_id

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("stack")]

HOUR_MS = 3_600_000
NEAR_MS = 1_000
"""How exact a time of a page or answer must be; command time is wrong by more."""
LIVE_JOBS = "SELECT name FROM schedule_job WHERE lane = ? AND tenant = ? AND state = ?"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatingScene]:
    with Processes() as processes:
        scene = OperatingScene(tmp_path_factory.mktemp("operating"), processes)
        play(scene)
        yield scene
        scene.close()


def test_chunks_of_a_task_that_ended_are_planned_again_and_noticed_until_then(scene: OperatingScene) -> None:
    seen = scene.moments
    assert "its task ended: its file" in seen.chunk
    assert "in task" not in seen.chunk
    [stuck] = [one for one in seen.stuck_blockers if one["code"] == "chunks_stuck"]
    assert stuck["text"].startswith("4 chunks of tables stuck")
    assert "4 chunks of tables stuck" in seen.stuck_page
    assert seen.created == seen.foreseen > 0
    kept_out = scene.stack.rows("SELECT path FROM tables_badfile WHERE released_at_ms IS NULL")
    assert kept_out == [(BAD_FILE,)]
    assert "chunks_stuck" not in {one["code"] for one in scene.blockers()}


def test_paused_work_is_called_paused_and_not_promised(scene: OperatingScene) -> None:
    report = scene.get("/progress")
    assert report["total"]["clear"] == "paused"
    assert {row["clear_words"] for row in report["lanes"] if row["tenant"] == "umbrella"} == {"paused"}
    assert "never at this rate" not in scene.page("/admin/backlog/")
    front = scene.page("/admin/")
    assert "All that could be done now is paused: 2 jobs and 1 queue." in front
    assert "Waiting for a worker" not in front
    standstill = scene.page("/admin/standstill/")
    assert "1 queue, of them 1 paused" in standstill
    assert "2 jobs, of them 2 paused" in standstill


def test_a_paused_block_is_explained_with_its_job_and_its_pause(scene: OperatingScene) -> None:
    [(job,)] = scene.stack.rows(LIVE_JOBS, "tsdb", "umbrella", "waiting")
    told = scene.get(f"/explain/{block_id(0)}")["explanations"]
    assert f"of job {job}, which is waiting (an operator paused tenant umbrella (pause))" in str(told)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("umbrella", "Tenant umbrella is paused: an operator paused tenant umbrella (pause)"),
        ("umbrella/logs", "Table umbrella/logs is paused: an operator paused tenant umbrella (pause)"),
        ("acme/events", "Table acme/events is in need of attention: 1 file quarantined"),
        ("acme/lake", "Repository acme/lake is "),
    ],
)
def test_tenants_tables_and_repositories_are_explained(scene: OperatingScene, name: str, sentence: str) -> None:
    assert sentence in str(scene.get(f"/explain/{name}"))


def test_the_backlogs_of_tables_and_buckets_are_in_the_progress_report(scene: OperatingScene) -> None:
    assert ("tables", "umbrella/logs") in {(row["lane"], row["name"]) for row in scene.get("/progress")["lanes"]}
    assert "umbrella/logs" in scene.page("/admin/backlog/")


def test_a_table_and_a_bucket_stand_alike_wherever_they_are_shown(scene: OperatingScene) -> None:
    told = json.loads(scene.stack.manage("tables", "status", "--json"))["tables"]
    assert sorted(row["state"] for row in told) == ["compacting", "needs attention"]
    for name, word in (("events", "needs attention"), ("logs", "compacting")):
        table = scene.row_id("tables_datasource", name=name)
        for address in ("/admin/", "/admin/tables/datasource/", f"/admin/tables/datasource/{table}/change/"):
            assert word in scene.page(address), address
    bucket = scene.row_id("tsdb_bucket", name="metrics")
    assert "State compacting" in scene.page(f"/admin/tsdb/bucket/{bucket}/change/")
    assert "ago compacting" in scene.page("/admin/tsdb/bucket/")


def test_numbers_of_a_branch_are_the_same_in_the_list_and_on_its_page(scene: OperatingScene) -> None:
    branch, repository = scene.row_id("catalog_branch", name="main"), scene.row_id("catalog_repository", name="lake")
    for shown in ("branch/", f"branch/{branch}/change/", "repository/", f"repository/{repository}/change/"):
        assert "about 1 " in scene.page(f"/admin/catalog/{shown}"), shown
    assert "tombstones about 1 " in scene.page(f"/admin/catalog/branch/{branch}/change/").lower()


def test_a_dry_run_names_every_parked_job_that_the_page_counts(scene: OperatingScene) -> None:
    parked = scene.get("/operations/parked", kind="evicted")["jobs"]
    foreseen = scene.post("/operations/requeue", filter={"all": True, "kind": "evicted"}, dry_run=True).json()
    assert len(foreseen["changed"]) + len(foreseen["left"]) == len(parked) > 0


def test_times_are_wall_times(scene: OperatingScene) -> None:
    assert scene.moments.lag_ms >= LAG_MS_MIN > NEAR_MS, "command time is behind"
    before_ms = now_ms()
    given = scene.post("/operations/limits", limit="queue_max", value=900, for_seconds=3600)
    after_ms = now_ms()
    assert given.status_code == 200, given.text
    [row] = [row for row in scene.get("/operations/limits")["limits"] if row["limit"] == "queue_max"]
    assert before_ms - NEAR_MS <= row["set_at_ms"] <= after_ms + NEAR_MS
    assert before_ms - NEAR_MS <= row["valid_until_ms"] - HOUR_MS <= after_ms + NEAR_MS
    held = scene.get("/operations/quarantine")["quarantine"]
    assert held
    for one in held:
        assert scene.moments.isolated_ms - NEAR_MS <= one["at_ms"] <= after_ms


def test_a_limit_of_an_unknown_lane_is_refused_and_an_unknown_tenant_noted(scene: OperatingScene) -> None:
    given = {"limit": "running_max", "value": 9, "dry_run": True}
    refused = scene.post("/operations/limits", **given, scope={"kind": "lane", "value": "nosuch"})
    assert refused.status_code == 400
    assert "no lane 'nosuch'" in refused.text
    noted = scene.post("/operations/limits", **given, scope={"kind": "tenant", "value": "acmee"}).json()["notes"]
    assert noted[0].startswith("no tenant 'acmee' is known: ")
    form = scene.previewed_limit("lane", "nosuch")
    assert "name one of catalog, profiles, tables, tsdb" in form
    assert "no tenant 'acmee' is known" in scene.previewed_limit("tenant", "acmee")


def test_a_compaction_of_a_branch_that_failed_is_noticed_and_listed(scene: OperatingScene) -> None:
    [(job,)] = scene.stack.rows(LIVE_JOBS, "catalog", "acme", "parked")
    assert job in {row["job"] for row in scene.get("/operations/parked")["jobs"]}
    assert job in scene.page("/admin/progress/parkedjob/")
    [parked] = [one for one in scene.blockers() if one["code"] == "parked"]
    assert parked["text"] in scene.page("/admin/standstill/")
    assert "jobs parked; keep" in scene.page("/admin/")
    assert "compactions fail" in scene.page("/admin/catalog/repository/")


def test_a_store_that_damages_most_blocks_stops_the_quarantine(scene: OperatingScene) -> None:
    [stop] = scene.get("/operations/isolation")["stops"]
    assert stop["lane"] == "profiles"
    assert stop["bad_sources"] >= BAD_SOURCES_MIN
    assert len(scene.get("/operations/quarantine")["quarantine"]) < BAD_SOURCES_MIN
    assert "quarantine_stopped" in {one["code"] for one in scene.blockers()}
    assert "Quarantine is stopped until an operator decides: " in scene.page("/admin/")


def test_what_deleting_a_tenants_data_leaves_is_named_before(scene: OperatingScene) -> None:
    told = scene.stack.manage("delete_data", "acme", "--dry-run")
    assert "events" in told
    assert "repository of the catalog (lake)" in told


def test_what_another_writer_moves_is_explained(scene: OperatingScene) -> None:
    answer = scene.rest.post("/placement/what-if", json={"add": [""]}).json()
    [note] = [note for note in answer["notes"] if note.startswith("The ring grows from 8 to 24 shards: ")]
    assert "placement ring-size 24, run before the instance starts" in note
    assert "The ring grows from 8 to 24 shards: " in scene.page("/admin/placement-map/", ask="1", add="-")


def test_a_damaged_block_of_a_bucket_is_kept_out_and_the_others_are_merged(scene: OperatingScene) -> None:
    kept_out = scene.stack.rows(
        "SELECT block.ulid FROM tsdb_blockquarantine held JOIN tsdb_block block ON block.id = held.block_id"
    )
    assert kept_out == [(block_id(BAD_BLOCK),)]
