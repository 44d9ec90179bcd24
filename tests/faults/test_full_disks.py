"""A disk without room: that of nodes' scratch folders, of a local object store, of PostgreSQL.

Whatever was acknowledged is there, work waits, and continues by itself when there is room again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.faults.all_lanes import all_lanes
from tests.faults.postgresql import PostgresqlServer, running_postgresql
from tests.faults.stack import SETTLE_SECONDS, FaultStack
from tests.faults.test_block_kills import RESULTS, Tenant, adopted
from tests.faults.test_writer_loss import check_exactly_once
from tests.faults.writer_fleet import WriterFleet, load_on
from tests.processes import Processes, wait_until

ATTEMPTS = (
    "SELECT reason->>'error_class' FROM schedule_attempt attempt JOIN schedule_job job ON attempt.job_id = job.id"
    " WHERE job.tenant = %s AND outcome <> 'running'"
)


def test_jobs_wait_while_the_scratch_folders_of_all_nodes_are_full(
    fault_stack: FaultStack, s3_credentials: None, tmp_path: Path
) -> None:
    with adopted(fault_stack, "cortex", "full-scratch") as store:
        tenant = Tenant(fault_stack, store, tmp_path, "full-scratch")
        with fault_stack.scratch_disk.full():
            tenant.put()
            wait_until(lambda: ("ScratchFull",) in tenant.rows(ATTEMPTS), "a node reports it", SETTLE_SECONDS)
            fault_stack.wait_until_named("ScratchFull")
            tenant.check_readers()
        tenant.wait_until_settled()
        [(result,)] = tenant.rows(RESULTS)
        assert tenant.check_readers() == {result}


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresqlServer]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="module")
def fleet(postgresql: PostgresqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterFleet]:
    with Processes() as processes:
        fleet = WriterFleet(processes, tmp_path_factory.mktemp("fleet"), postgresql.url, WRITER_FLUSH_SECONDS="0.1")
        fleet.start("w1", "w2")
        yield fleet


def test_a_local_store_without_room_refuses_pushes_and_takes_them_when_it_has_some(fleet: WriterFleet) -> None:
    with load_on(fleet) as load:
        load.wait_for(60)
        with fleet.disk.full():
            failed = load.unavailable
            wait_until(lambda: load.unavailable > failed + 10, "senders are refused")
            assert fleet.failed_segments(), "an alert looks at it"
            notices = fleet.notices()
            assert any("could not store segments at the last attempt" in text for text in notices)
            assert not any("Dead letters recovered" in text for text in notices)
            during = len(load.acknowledged)
            wait_until(lambda: load.unavailable > failed + 30, "senders are refused again")
            assert len(load.acknowledged) == during
        load.wait_for(60)
    check_exactly_once(fleet, load)


def test_a_database_without_room_loses_nothing_and_is_recovered_by_a_start(
    fleet: WriterFleet, postgresql: PostgresqlServer
) -> None:
    """PostgreSQL ends where its log finds no room; writers leave dead letters."""
    with load_on(fleet) as load:
        load.wait_for(60)
        with postgresql.disk.full():
            wait_until(fleet.letters, "dead letters are written")
            load.wait_for(60)
        postgresql.crash()  # as it has by itself, unless it had room before it gave up
        load.wait_for(60)
    assert fleet.recover_letters()
    assert any("Dead letters recovered" in text for text in fleet.notices())
    check_exactly_once(fleet, load)


def test_work_of_all_lanes_waits_for_a_database_without_room(
    fault_stack: FaultStack, s3_credentials: None, tmp_path: Path
) -> None:
    server = fault_stack.around.postgresql
    with all_lanes(fault_stack, tmp_path, "full-database") as lanes:
        lanes.start()
        with server.disk.full():
            for port in fault_stack.ports:
                away = f"http://127.0.0.1:{port}/readyz"
                wait_until(lambda url=away: httpx.get(url, timeout=60).status_code == 503, f"{away} says so")
            page = httpx.get(f"{fault_stack.service.url}/admin/", cookies={"sessionid": "a" * 32}, timeout=60)
            assert "The database does not answer" in page.text
        server.crash()
        lanes.check()
