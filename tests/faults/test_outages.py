"""What everything stands on goes away and comes back: broker, database, object store. Nothing is lost or doubled."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.faults.all_lanes import all_lanes
from tests.faults.http_proxy import Request
from tests.faults.stack import NODES, SETTLE_SECONDS, FaultStack
from tests.faults.traps import Fate, Moment, Trap
from tests.processes import wait_until

FATES = [
    (Moment.BEFORE, Fate.REFUSE),  # the store is busy
    (Moment.BEFORE, Fate.CUT),  # the connection breaks
    (Moment.AFTER, Fate.CUT),  # the store does it and nobody hears of it
    (Moment.AFTER, Fate.TEAR),  # half of an answer
]
STORM_SECONDS = 60.0
STORM_NOTICES = ("StorageError", "of Prometheus blocks not read: the last scan broke off")
CALLS = 12
"""The sweep. A shard of two segments sees more than half as many calls from its first read to its last deletion."""


@pytest.mark.parametrize("moment", Moment)
def test_a_database_that_crashes_at_the_swap_comes_back_with_all_or_nothing_of_it(
    fault_stack: FaultStack, moment: Moment
) -> None:
    shard = fault_stack.new_shard()
    # By the values: of statements that the server knows by now only these are sent.
    trap = Trap(moment=moment, matches=lambda said: said.commits(f"blocks/{shard}/", f"-S{shard}-L0"))
    with fault_stack.around.database.traps.set(trap):
        expected = fault_stack.write_segments(shard)
        trap.wait()
        fault_stack.around.postgresql.crash()
    assert fault_stack.check(shard, expected) == []


def test_a_broker_that_is_killed_while_nodes_merge_and_objects_wait_for_deletion_stops_nothing_for_long(
    fault_stack: FaultStack,
) -> None:
    shard = fault_stack.new_shard()
    reading: Trap[Request] = Trap(
        moment=Moment.BEFORE, matches=lambda request: request.is_about("GET", f"/segments/{shard}/"), fate=Fate.PASS
    )
    with fault_stack.around.store.traps.set(reading):
        expected = fault_stack.write_segments(shard)
        reading.wait()
        fault_stack.kill("redis")
    fault_stack.check(shard, expected)


def test_beat_killed_after_a_swap_sends_the_deletions_when_it_is_back(fault_stack: FaultStack) -> None:
    shard = fault_stack.new_shard()
    trap: Trap[Request] = Trap(
        moment=Moment.AFTER,
        matches=lambda request: request.is_about("POST", "/jobs/poll", b"-S%d-L2" % shard),
        fate=Fate.PASS,
    )
    with fault_stack.service.traps.set(trap):
        expected = fault_stack.write_segments(shard, 2)
        trap.wait()
        fault_stack.kill("beat")
    assert fault_stack.check(shard, expected) == []


def test_nodes_that_stand_still_are_missed_and_come_back_too_late_to_do_harm(fault_stack: FaultStack) -> None:
    """Both are suspended in the middle of a merge, for longer than their leases last."""
    shard = fault_stack.new_shard()
    reading: Trap[Request] = Trap(
        moment=Moment.BEFORE, matches=lambda request: request.is_about("GET", f"/segments/{shard}/"), fate=Fate.PASS
    )
    with fault_stack.around.store.traps.set(reading):
        expected = fault_stack.write_segments(shard)
        reading.wait()
        with fault_stack.frozen(*NODES):
            reading.let_go(Fate.PASS)
            fault_stack.wait_until_named("There is work and no worker polls: 2 workers silent")
    fault_stack.check(shard, expected)


def test_an_object_store_that_fails_on_the_n_th_call_costs_time_only(fault_stack: FaultStack) -> None:
    """Each shard has its own n, and its own way to fail."""
    shards = {fault_stack.new_shard(): number for number in range(1, CALLS + 1)}
    traps = {shard: _fault(shard, number) for shard, number in shards.items()}
    with fault_stack.around.store.traps.set(*traps.values()):
        expected = {shard: fault_stack.write_segments(shard, 2) for shard in shards}
        for shard, samples in expected.items():
            fault_stack.check(shard, samples)
    assert all(trap.struck for shard, trap in traps.items() if shards[shard] <= CALLS // 2), "too few calls to fail"


def test_a_job_whose_objects_are_temporarily_unreadable_fails_and_is_done_later(
    fault_stack: FaultStack,
) -> None:
    shard = fault_stack.new_shard()
    trap: Trap[Request] = Trap(
        moment=Moment.BEFORE,
        matches=lambda request: f"/segments/{shard}/" in request.path,
        times=1 << 30,
        fate=Fate.REFUSE,
        holds=False,
    )
    with fault_stack.around.store.traps.set(trap):
        expected = fault_stack.write_segments(shard, 4)
        wait_until(lambda: fault_stack.attempts(shard)["failed"], "the job fails", SETTLE_SECONDS)
    assert fault_stack.check(shard, expected) == []


def test_a_store_that_slows_everybody_down_for_a_minute_delays_the_work_only(
    fault_stack: FaultStack, s3_credentials: None, tmp_path: Path
) -> None:
    """Every request is answered with 503; segments are registered meanwhile."""
    storm: Trap[Request] = Trap(
        moment=Moment.BEFORE, matches=lambda request: True, times=1 << 30, fate=Fate.REFUSE, holds=False
    )
    shards = {shard: fault_stack.put_segments(shard, 4) for shard in (fault_stack.new_shard() for _ in range(3))}
    expected = {shard: fault_stack.samples(segments) for shard, segments in shards.items()}
    with all_lanes(fault_stack, tmp_path, "storm") as lanes:
        with ExitStack() as faults:
            with lanes.planned():
                faults.enter_context(fault_stack.around.store.traps.set(storm))
            ends_at = time.monotonic() + STORM_SECONDS
            for segments in shards.values():
                fault_stack.register(segments)
            for words in STORM_NOTICES:
                fault_stack.wait_until_named(words)
            lanes.check_failed()
            wait_until(lambda: time.monotonic() >= ends_at, "the storm is over", 2 * STORM_SECONDS)
            assert httpx.get(f"{fault_stack.service.url}/readyz", timeout=30).is_success
        assert storm.struck > 100
        for shard, samples in expected.items():
            fault_stack.check(shard, samples)
        lanes.check()


def _fault(shard: int, number: int) -> Trap[Request]:
    moment, fate = FATES[number % len(FATES)]
    return Trap(
        moment=moment, matches=lambda request: f"/{shard}/" in request.path, call=number, fate=fate, holds=False
    )
