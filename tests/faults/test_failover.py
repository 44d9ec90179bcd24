"""The primary is lost and a standby takes over, up to date or behind, on a database with every safety on.

What was acknowledged is found exactly once at the end; where the standby was behind, nothing is deleted and the service
says so until the index was repaired; and no index of a command is issued twice.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.all_lanes import all_lanes
from tests.faults.postgresql import PostgresqlServer, StandbyServer, running_postgresql
from tests.faults.stack import FaultStack, running_stack
from tests.faults.writer_fleet import Load, WriterFleet, load_on
from tests.object_stores import S3Server
from tests.processes import Processes, wait_until
from webadmin.schedule.command_log import INDEX_MARGIN

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("failover")]

ALLOW = """
import django
django.setup()
from webadmin.schedule.errors import LogBehind
from webadmin.schedule.services.guard_deletions import allow_deletions
try:
    allow_deletions(mark=True)
    print("allowed")
except LogBehind as error:
    print(error)
"""
PAGES = """
import django, json
django.setup()
from django.contrib.auth.models import User
from django.test import Client
client = Client(SERVER_NAME="127.0.0.1")
health = client.get("/progressz", headers={"Authorization": "Bearer watch"})
client.force_login(User.objects.create_superuser("ann"))
front = client.get("/admin/").content.decode()
print(json.dumps([health.status_code, health.json()["blocker"], "fsck --repair" in front]))
"""

CLEANUP_DELAY = "UPDATE schedule_limits SET cleanup_delay_seconds = {} RETURNING id"
KEEP_OBJECTS, DELETE_OBJECTS = CLEANUP_DELAY.format(3600), CLEANUP_DELAY.format(0)
"""Objects of replaced blocks must outlast the lag of a standby."""
END_DELAYS = "UPDATE profiles_tombstone SET eligible_at_ms = 0 RETURNING id"


@contextmanager
def standby_of(primary: PostgresqlServer | StandbyServer) -> Iterator[StandbyServer]:
    """Run a standby that streams from the primary."""
    folder = Path(tempfile.mkdtemp(prefix="lithify-standby-"))
    try:
        standby = StandbyServer(primary, folder)
        try:
            wait_until(lambda: bool(primary.rows("SELECT 1 FROM pg_stat_replication")), "the standby streams")
            yield standby
        finally:
            standby.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pair() -> Iterator[tuple[PostgresqlServer, StandbyServer]]:
    with running_postgresql() as primary, primary.durable(), standby_of(primary) as standby:
        yield primary, standby
        primary.start()  # for its fixture to stop


@contextmanager
def fleet_on(standby: StandbyServer, home: Path) -> Iterator[WriterFleet]:
    """Run two writers on the pair, which acknowledge nothing on a database whose settings are unsafe."""
    quick = {"WRITER_SUSPECT_SECONDS": "1.5", "WRITER_TIMEOUT_SECONDS": "3", "WRITER_FLUSH_SECONDS": "0.1"}
    with Processes() as processes:
        fleet = WriterFleet(processes, home, standby.url_of_both, ALLOW_UNSAFE_DATABASE="0", **quick)
        fleet.start("w1", "w2")
        yield fleet


def last_index(standby: StandbyServer) -> int:
    """Return the last index of the command log, on whichever server takes writes."""
    [(index,)] = standby.rows("SELECT max(index) FROM schedule_command")
    return int(index)


def check_exactly_once(fleet: WriterFleet, load: Load) -> None:
    if fleet.letters():
        fleet.recover_letters()
    found = fleet.found()
    assert not load.acknowledged.keys() - found.keys()
    assert {name: count for name, count in found.items() if count != 1} == {}


def test_failover_to_a_synchronous_standby_loses_nothing_and_needs_no_operator(
    pair: tuple[PostgresqlServer, StandbyServer], tmp_path: Path
) -> None:
    primary, standby = pair
    set_synchronous(primary)
    with fleet_on(standby, tmp_path) as fleet:
        with load_on(fleet) as load:
            load.wait_for(30)
            assert fleet.python("-c", ALLOW).strip().endswith("allowed")
            before = last_index(standby)
            primary.stop()
            standby.promote()
            load.wait_for(30)
        assert fleet.python("-c", ALLOW).strip().endswith("allowed")
        assert last_index(standby) > before + INDEX_MARGIN
        check_exactly_once(fleet, load)


def test_failover_to_a_lagging_standby_deletes_nothing_until_the_index_was_repaired(
    pair: tuple[PostgresqlServer, StandbyServer], tmp_path: Path
) -> None:
    primary, standby = pair
    with fleet_on(standby, tmp_path) as fleet:
        with load_on(fleet) as load:
            load.wait_for(30)
            standby.disconnect()
            load.wait_for(30)
            assert fleet.python("-c", ALLOW).strip().endswith("allowed")
            before = last_index(standby)
            load.wait_for(10)
            primary.stop()
            standby.promote()
            load.wait_for(30)
        assert load.acknowledged.keys() - fleet.found().keys(), "the standby was behind"
        refused = fleet.python("-c", ALLOW)
        assert "is not in this command log" in refused
        assert json.loads(fleet.python("-c", PAGES).splitlines()[-1]) == [503, "log_behind", True]
        assert last_index(standby) > before + INDEX_MARGIN
        fleet.python("manage.py", "fsck", "--repair")
        assert fleet.python("-c", ALLOW).strip().endswith("allowed")
        check_exactly_once(fleet, load)


@pytest.mark.timeout(480)
def test_work_of_all_lanes_survives_a_failover_to_a_lagging_standby(
    pair: tuple[PostgresqlServer, StandbyServer], s3_server: S3Server, tmp_path: Path
) -> None:
    primary, standby = pair
    with (
        running_stack(s3_server, standby, tmp_path, socket_file=primary.socket_file) as stack,
        all_lanes(stack, tmp_path / "lanes", "lagging") as lanes,
    ):
        stack.rows(KEEP_OBJECTS)
        with lanes.planned():
            standby.disconnect()
        lanes.wait_until_swapped()
        assert stack.python("-c", ALLOW).strip().endswith("allowed")  # Writes the position, as every minute.
        fail_over(stack, primary, standby)
        assert lanes.are_swaps_lost(), "the standby was behind"
        stack.wait_until_named("is not in this command log")
        lanes.check_readers()
        stack.python("manage.py", "fsck", "--repair")
        stack.python("manage.py", "tables", "rescan", "--table", lanes.table.name, "--tenant", "acme")
        stack.rows(DELETE_OBJECTS)
        stack.rows(END_DELAYS)
        lanes.check()


def fail_over(stack: FaultStack, primary: PostgresqlServer | StandbyServer, standby: StandbyServer) -> None:
    """Lose the primary, and let the standby take its place for all processes."""
    primary.stop()
    standby.promote()
    stack.around = replace(stack.around, postgresql=standby)
    stack.around.database.redirect(standby.socket_file)


def set_synchronous(primary: PostgresqlServer) -> None:
    """Let every commit wait for the standby."""
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.sql("SELECT pg_reload_conf()")
    wait_until(
        lambda: primary.rows("SELECT sync_state FROM pg_stat_replication") == [("sync",)], "the standby is synchronous"
    )
