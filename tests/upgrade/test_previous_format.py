"""What builds of earlier formats wrote into the log, and what their nodes say and hear, is understood by this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from engine.lanes.profiles.merge import merge
from engine.lanes.profiles.results import read_profile_result
from engine.schedule.errors import EntryUnknown
from engine.schedule.job_names import job_name
from engine.schedule.model import FORMAT_VERSION
from engine.storage import open_store
from tests.block_factory import merged
from tests.log_replay.replay import apply_entry
from tests.log_replay.state import ReplayedState
from tests.segments import segment_job

Recorded = dict[str, Any]


@pytest.fixture(params=range(1, FORMAT_VERSION))
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """What ``recording.py`` wrote in the last build of each earlier format. Who raises the format adds a record."""
    found: Recorded = json.loads(Path(__file__).with_name(f"format-{request.param}.json").read_text())
    assert {entry["format_version"] for entry in found["log"]} == {request.param}
    return found


def replayed(recorded: Recorded, times: int = 1) -> ReplayedState:
    state = ReplayedState()
    for entry in recorded["log"]:
        for _ in range(times):
            apply_entry(state, **entry)
    return state


def as_the_old_build_writes(new: Any, old: Any) -> Any:
    """Take out, at every depth, what the old build does not write."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {name: as_the_old_build_writes(new[name], value) for name, value in old.items()}
    if isinstance(old, list) and old and isinstance(old[0], dict):
        return [as_the_old_build_writes(one, old[0]) for one in new]
    return new


def test_its_log_leads_to_the_tables_it_had(recorded: Recorded) -> None:
    state = replayed(recorded)
    found = {(shard, ulid): row for shard, ulid, *row in recorded["blocks"]}
    assert {key: [block.tenant, block.level, block.state] for key, block in state.blocks.items()} == {
        key: row[:3] for key, row in found.items()
    }
    owned = {key: block.owner for key, block in state.blocks.items() if block.state == "owned"}
    assert owned == {key: row[3] for key, row in found.items() if row[2] == "owned"}
    assert {name: [job.state, job.token, job.failures, job.parked_reason] for name, job in state.jobs.items()} == (
        recorded["jobs"]
    )
    assert replayed(recorded, times=2) == state, "applying an entry twice is applying it once"


def test_the_record_has_every_kind_of_change_that_the_old_build_made(recorded: Recorded) -> None:
    plans = [entry["change_set"] for entry in recorded["log"] if entry["kind"] == "update_plan"]
    assert {entry["kind"] for entry in recorded["log"]} == {"add_blocks", "advance_clock", "update_plan"}
    assert all(any(plan[part] for plan in plans) for part in ("completed", "returned", "assigned", "created"))


def test_equal_plans_still_have_equal_names(recorded: Recorded) -> None:
    assert job_name([], tenant="", shard=0, level=0) == recorded["job_name_of_nothing"]
    for entry in recorded["log"]:
        for created in entry["change_set"].get("created", ()):
            place = {name: created[name] for name in ("tenant", "shard", "level")}
            assert job_name(created["sources"], **place) == created["job"]


def test_a_job_that_the_old_service_assigned_is_merged_to_the_same_bytes(recorded: Recorded, tmp_path: Path) -> None:
    """A new node is given a specification without what came later, and does what it always meant."""
    read = ProfileMergeSpec.from_json(recorded["assignment"]["spec"])
    assert (read.masks, read.is_rewrite, {source.masks_applied for source in read.sources}) == ((), False, {0})
    store, scratch = open_store(str(tmp_path / "objects")), tmp_path / "scratch"
    scratch.mkdir()
    spec = segment_job(store, "job", 7)
    old = as_the_old_build_writes(spec.to_json(), recorded["assignment"]["spec"])
    results = [merge.run(one, store, scratch=Scratch(scratch)) for one in (spec, ProfileMergeSpec.from_json(old))]
    assert results[0] == results[1]


def test_a_result_that_an_old_node_reports_is_read_as_one_that_knew_of_no_delete_requests(recorded: Recorded) -> None:
    result = read_profile_result(recorded["result"])
    assert result.masks == ()
    spec = ProfileMergeSpec.from_json(recorded["assignment"]["spec"])
    assert result.sources == tuple(source.id for source in spec.sources)
    assert {block.key for block in result.blocks} == {block.key for block in merged(spec).blocks}
    whole = ProfileMergeResult.from_json(recorded["result"]).to_json()
    assert as_the_old_build_writes(whole, recorded["result"]) == recorded["result"]


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, FORMAT_VERSION + 7])
def test_an_entry_of_a_newer_format_is_refused_by_number_before_anything_of_it_is_applied(
    recorded: Recorded, version: int
) -> None:
    state, before = replayed(recorded), replayed(recorded)
    newer = {**recorded["log"][0], "index": 1000, "format_version": version}
    with pytest.raises(EntryUnknown, match=rf"entry 1000 has format {version}, this build knows 1 to {FORMAT_VERSION}"):
        apply_entry(state, **newer)
    assert state == before
