"""In the middle of an upgrade two builds of the web process serve polls from one database, to nodes of both builds."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from engine.core.errors import LithifyError
from engine.core.version import VERSION
from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.proto import block_list_pb2
from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.protocol.messages import JobUpdate, PollRequest, UpdateStatus
from engine.schedule.errors import EntryUnknown
from engine.schedule.model import FORMAT_VERSION
from tasks.service_client import ServiceClient
from tests.block_factory import block_meta, merged, segment_ids
from tests.faults.postgresql import PostgresqlServer, running_postgresql
from tests.log_replay.replay import apply_entry
from tests.log_replay.state import ReplayedState
from tests.processes import ROOT, Processes, wait_until
from tests.upgrade.builds import NAME_PREFIX, NEWER, NEWER_BUILD, NEWER_FORMAT, make_build

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("two_builds")]

SEGMENTS, BATCH = 40, 8
SERVICES = (("acme", "api"), ("acme", "web"), ("beta", "web"))
POLL_SECONDS = 0.05
SETTLE_SECONDS = 90.0
PREPARE = """
import django, json
django.setup()
from webadmin.base.access.services import issue_worker_credential
from webadmin.lanes.profiles.level_models import LevelPolicy
LevelPolicy.objects.update(blocks_max=4, age_seconds=0)
scopes = ["jobs:poll", "blocks:add"]
print(json.dumps(issue_worker_credential(name="all", scopes=scopes, actor="test").wire_form))
"""


@dataclass(frozen=True, kw_only=True)
class TwoBuilds:
    """The addresses of this build's web process and of the newer one's."""

    database: PostgresqlServer
    addresses: tuple[str, str]
    credential: str

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.database.rows(query, *parameters)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBuilds]:
    home = tmp_path_factory.mktemp("two-builds")
    newer = make_build(home / "newer", NEWER_BUILD)
    with running_postgresql() as database, Processes() as processes:
        environment = {
            "DATABASE_URL": database.url,
            "LITHIFY_HOME": str(home),
            "DJANGO_SETTINGS_MODULE": "webadmin.settings",
        }
        prepared = subprocess.run(
            [sys.executable, "-c", PREPARE],
            env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert prepared.returncode == 0, prepared.stderr
        addresses = tuple(processes.start_web(environment, folder)[1] for folder in (ROOT, newer))
        yield TwoBuilds(
            database=database, addresses=(addresses[0], addresses[1]), credential=json.loads(prepared.stdout)
        )


class Node(threading.Thread):
    """Polls both web processes in turn until it is stopped, and reports what a merge of each job would."""

    def __init__(self, builds: TwoBuilds, name: str, build: str, stopped: threading.Event) -> None:
        super().__init__(name=name)
        self.build, self._stopped = build, stopped
        self._clients = [ServiceClient(address, builds.credential) for address in builds.addresses]

    def run(self) -> None:
        updates: list[JobUpdate] = []
        turns = itertools.cycle(self._clients)
        while not self._stopped.wait(POLL_SECONDS):
            request = PollRequest(worker=self.name, build=self.build, capacity=2, updates=tuple(updates))
            try:
                answer = next(turns).poll(request)
            except LithifyError:
                continue  # said again, to the other
            updates = [
                JobUpdate(
                    job=given.job,
                    token=given.token,
                    status=UpdateStatus.SUCCESS,
                    result=merged(ProfileMergeSpec.from_json(given.spec)).to_json(),
                )
                for given in answer.assignments
            ]
        for client in self._clients:
            client.close()


def add_segments(builds: TwoBuilds) -> None:
    """Add batches to the two web processes in turn."""
    ids = segment_ids(round(time.time() * 1000) - 60_000, SEGMENTS, step_ms=10)
    headers = {"Authorization": f"Bearer {builds.credential}", "Content-Type": "application/x-protobuf"}
    for first, address in zip(range(0, SEGMENTS, BATCH), itertools.cycle(builds.addresses), strict=False):
        metas = [block_meta(block_id, datasets=SERVICES) for block_id in ids[first : first + BATCH]]
        entries = [block_list_pb2.BlockEntry(metadata=encode_metadata(meta), size=meta.size) for meta in metas]
        body = block_list_pb2.BlockMetaList(blocks=entries).SerializeToString()
        answer = httpx.post(f"{address}/api/v1/blocks", content=body, headers=headers, timeout=30)
        assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def merged_by_both(builds: TwoBuilds) -> TwoBuilds:
    """Both builds after nodes of both have merged everything that was added to either."""
    stopped = threading.Event()
    nodes = [Node(builds, f"node-{number}", build, stopped) for number, build in enumerate([VERSION, NEWER] * 2)]
    for node in nodes:
        node.start()
    try:
        add_segments(builds)
        states = "SELECT DISTINCT state FROM profiles_block"
        wait_until(
            lambda: {state for (state,) in builds.rows(states)} == {"final", "replaced"},
            "all is merged",
            SETTLE_SECONDS,
        )
    finally:
        stopped.set()
        for node in nodes:
            node.join()
    return builds


def test_two_planner_builds_poll_side_by_side_and_nothing_is_planned_twice(merged_by_both: TwoBuilds) -> None:
    builds = merged_by_both
    jobs = builds.rows("SELECT name, state, spec FROM schedule_job")
    assert {state for _, state, _ in jobs} == {"done"}
    planned_by = {name.startswith(NAME_PREFIX) for name, *_ in jobs}
    assert planned_by == {True, False}, "both builds have planned"
    planned = Counter(source for *_, spec in jobs for source in spec["sources"])
    assert set(planned.values()) == {1}, "no block is in two plans"
    replaced = builds.rows("SELECT ulid FROM profiles_block WHERE state = 'replaced'")
    assert set(planned) == {ulid for (ulid,) in replaced}
    completed = builds.rows("SELECT build, job_id FROM schedule_attempt WHERE outcome = 'completed'")
    assert {build for build, _ in completed} == {VERSION, NEWER}
    assert len(completed) == len({job for _, job in completed}) == len(jobs), "each job was completed once"
    segments = builds.rows("SELECT count(*) FROM profiles_block WHERE level = 0")
    assert segments == [(SEGMENTS,)]


def test_this_build_replays_the_log_up_to_the_first_entry_of_a_newer_format(
    merged_by_both: TwoBuilds,
) -> None:
    entries = merged_by_both.rows("SELECT index, kind, format_version, change_set FROM schedule_command ORDER BY index")
    assert {version for _, _, version, _ in entries} == {FORMAT_VERSION, NEWER_FORMAT}
    state = ReplayedState()
    with pytest.raises(EntryUnknown, match=f"has format {NEWER_FORMAT}, this build knows 1 to {FORMAT_VERSION}"):
        replay(state, entries)
    assert state.last_index < min(index for index, _, version, _ in entries if version == NEWER_FORMAT)


def replay(state: ReplayedState, entries: list[tuple[Any, ...]]) -> None:
    for index, kind, version, change_set in entries:
        apply_entry(state, index=index, kind=kind, format_version=version, change_set=change_set)
