"""Segment writers in separate processes, under load: killed, paused, without database, without object store.

Whatever was acknowledged is found by a query, exactly once, although the senders send again what got no answer.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.faults.database_proxy import DatabaseProxy, database_proxy
from tests.faults.postgresql import PostgresqlServer, running_postgresql
from tests.faults.writer_fleet import Load, WriterFleet, load_on
from tests.processes import Processes, paused, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("writer_loss")]

NAMES = ("w1", "w2", "w3")
DAY_S = 24 * 3600
TAKEOVER_SECONDS = 60.0
"""So that a takeover that does not happen fails; tests/bench/writer_loss.py measures how long one takes."""


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresqlServer]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="module")
def database(postgresql: PostgresqlServer) -> Iterator[DatabaseProxy]:
    """The way on which writers reach the database."""
    with database_proxy(postgresql.socket_file) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def running_fleet(
    postgresql: PostgresqlServer, database: DatabaseProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WriterFleet]:
    """Writers that call a silent one lost after three seconds."""
    with Processes() as processes:
        quick = {"WRITER_SUSPECT_SECONDS": "1.5", "WRITER_TIMEOUT_SECONDS": "3", "WRITER_FLUSH_SECONDS": "0.1"}
        quick["DATABASE_URL"] = f"postgresql://postgres@127.0.0.1:{database.port}/postgres?sslmode=disable"
        yield WriterFleet(processes, tmp_path_factory.mktemp("fleet"), postgresql.url, **quick)


@pytest.fixture
def fleet(running_fleet: WriterFleet) -> WriterFleet:
    """Three writers; those that the test before has ended are started again."""
    running_fleet.start(*NAMES)
    return running_fleet


def check_exactly_once(fleet: WriterFleet, load: Load) -> None:
    """After the sweep for dead letters: who was paused while it waited for the index calls that away."""
    if fleet.letters():
        fleet.recover_letters()
    found = fleet.found()
    missing = load.acknowledged.keys() - found.keys()
    assert not missing, f"{len(missing)} of {len(load.acknowledged)} acknowledged profiles are missing"
    assert {name: count for name, count in found.items() if count != 1} == {}


def test_one_of_three_is_killed_and_the_others_take_over(fleet: WriterFleet) -> None:
    with load_on(fleet, senders=12) as load:
        load.wait_for(60)
        shards = {shard for shard, owner in enumerate(fleet.ring().tables[""], 1) if owner == "w2"}
        killed_at = time.monotonic()
        fleet.writers["w2"].kill()
        load.wait_for(60)
        wait_until(lambda: set(fleet.ring().tables[""]) == {"w1", "w3"}, "its shards are others'")
        load.wait_for(60)
    assert shards
    assert load.takeover_seconds(shards, killed_at) < TAKEOVER_SECONDS
    check_exactly_once(fleet, load)


def test_one_that_was_paused_beyond_its_heartbeat_stores_what_it_took_and_comes_back(fleet: WriterFleet) -> None:
    with load_on(fleet) as load:
        load.wait_for(60)
        with paused(fleet.writers["w1"]):
            wait_until(lambda: set(fleet.ring().tables[""]) == {"w2", "w3"}, "its shards are others'")
            load.wait_for(60)
        wait_until(lambda: "w1" in fleet.writable(), "it is back")
        before = load.by("w1")
        wait_until(lambda: load.by("w1") > before, "it takes profiles again")
    check_exactly_once(fleet, load)


@pytest.mark.parametrize("step_s", [DAY_S, -8 * DAY_S], ids=["ahead", "back"])
def test_a_writer_whose_wall_clock_is_set_still_accepts_pushes(fleet: WriterFleet, step_s: int) -> None:
    """Ids of segments and the age of credentials rest on the database's clock."""
    with load_on(fleet) as load, fleet.clocks["w1"].stepped(step_s):
        load.wait_for(60)
        before = load.by("w1")
        wait_until(lambda: load.by("w1") > before + 10, "it takes profiles")
    check_exactly_once(fleet, load)


def test_a_writer_that_is_stopped_stores_accepted_pushes_and_no_push_fails(fleet: WriterFleet) -> None:
    with load_on(fleet) as load:
        load.wait_for(60)
        os.kill(fleet.writers["w3"].pid, signal.SIGTERM)
        assert fleet.writers["w3"].wait(20) == 0
        assert "w3" not in fleet.writable()
        load.wait_for(60)
    assert load.unavailable == 0, "every push found another instance at once"
    check_exactly_once(fleet, load)


def test_without_the_database_pushes_are_acknowledged_and_later_recovered(
    fleet: WriterFleet, postgresql: PostgresqlServer
) -> None:
    with load_on(fleet) as load:
        load.wait_for(60)
        ring = fleet.ring()
        postgresql.stop()
        try:
            load.wait_for(60)
            time.sleep(3.5)  # longer than the silence after which a writer is lost
            load.wait_for(30)
            assert fleet.letters()
            assert fleet.ring() == ring, "who cannot be last_serial is not accused"
        finally:
            postgresql.start()
        wait_until(lambda: fleet.letters() == letters_now(fleet), "no more letters are written")
        load.wait_for(60)
    assert recover_all_letters(fleet) > 0
    check_exactly_once(fleet, load)


def test_a_database_partitioned_away_delays_pushes_by_seconds_and_loses_none(
    fleet: WriterFleet, database: DatabaseProxy
) -> None:
    """Connections stay open and nothing comes back: the first flush waits for the index, those after it do not."""
    with load_on(fleet) as load:
        load.wait_for(60)
        with database.partitioned():
            load.wait_for(120)
            assert fleet.letters()
        wait_until(lambda: fleet.letters() == letters_now(fleet), "no more letters are written")
        load.wait_for(60)
    assert recover_all_letters(fleet) > 0
    check_exactly_once(fleet, load)


def recover_all_letters(fleet: WriterFleet) -> int:
    """Recover until no letter is left, and return how many there were: a flush that was late writes one more."""
    recovered = 0

    def none_left() -> bool:
        nonlocal recovered
        recovered += fleet.recover_letters()
        return fleet.letters() == 0

    wait_until(none_left, "every letter is recovered")
    return recovered


def letters_now(fleet: WriterFleet) -> int:
    """Count again after a moment."""
    time.sleep(1.5)
    return fleet.letters()


def test_while_the_object_store_fails_nothing_is_acknowledged_and_nothing_lost(fleet: WriterFleet) -> None:
    with load_on(fleet) as load:
        load.wait_for(60)
        segments, aside = fleet.objects / "segments", fleet.objects / "aside"
        segments.rename(aside)
        segments.write_text("a file where the store wants a folder")
        failed = load.unavailable
        wait_until(lambda: load.unavailable > failed + 5, "senders are told")
        during = len(load.acknowledged)
        wait_until(lambda: load.unavailable > failed + 15, "senders are told again")
        assert len(load.acknowledged) == during
        segments.unlink()
        aside.rename(segments)
        load.wait_for(60)
    check_exactly_once(fleet, load)
