"""The node's loop: what it asks for, what it runs, what it stops and what it gives back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.core.errors import ChecksumMismatch
from engine.protocol.messages import PollResponse, Progress, UpdateStatus
from engine.settings.node import NodeSettings
from engine.storage.model import ObjectNotFound
from tasks.errors import MergerDied, PollRefused, ServiceUnavailable
from tasks.node import TASK_MEMORY_BYTES, Node
from tests.tasks.doubles import CourierDouble, MergerDouble, ScheduleDouble

A, B, C = ("job-a", "token-1"), ("job-b", "token-2"), ("job-c", "token-3")
SETTINGS = NodeSettings(
    SERVICE_URL="http://127.0.0.1:1",
    WORKER_CREDENTIAL="lw_test",
    BROKER_URL="redis://127.0.0.1:1",
    OBJECT_STORE_URL="file:///nowhere",
    LITHIFY_HOME=Path("nowhere"),
    NODE_NAME="sand",
    NODE_CAPACITY=2,
    NODE_MEMORY_BYTES=64 << 30,
    POLL_SECONDS=0.02,
    MERGE_ON="engine",
)


class Bench:
    """A node with doubles around it."""

    def __init__(self, settings: NodeSettings = SETTINGS, deliveries: int = 1) -> None:
        self.schedule = ScheduleDouble()
        self.courier = CourierDouble(deliveries=deliveries)
        self.merger = MergerDouble()
        self.node = Node(settings, name="sand", service=self.schedule, courier=self.courier, merger=self.merger)
        self.courier.run = self.node.run
        self._runs = False

    def start(self) -> None:
        self._runs = True
        self.node.start()

    def close(self) -> None:
        self.merger.gate.set()
        if self._runs:
            self.node.close()
        self.courier.join()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def test_an_assigned_job_is_merged_and_its_result_reported(bench: Bench) -> None:
    bench.schedule.offer(A)
    bench.start()
    bench.schedule.wait_for(lambda: bench.schedule.results)
    assert bench.schedule.results == {A: {"blocks": [{"id": "job-a"}]}}


def test_all_assignments_of_a_poll_go_as_one_message(bench: Bench) -> None:
    bench.schedule.offer(A, B)
    bench.start()
    bench.schedule.wait_for(lambda: len(bench.schedule.results) == 2)
    assert bench.courier.messages == [(A, B)]


def test_a_message_delivered_three_times_merges_once() -> None:
    bench = Bench(deliveries=3)
    bench.schedule.offer(A)
    bench.start()
    bench.schedule.wait_for(lambda: bench.schedule.results)
    bench.close()
    assert bench.merger.merged == ["job-a"]


def test_a_message_for_a_job_that_is_not_held_does_nothing(bench: Bench) -> None:
    assert bench.node.run([A]) == 0
    assert bench.merger.merged == []


def test_capacity_is_what_is_left_of_the_slots(bench: Bench) -> None:
    bench.merger.gate.clear()
    bench.schedule.offer(A, B, C)
    bench.start()
    bench.merger.wait_entered()
    bench.schedule.wait_for_polls(2)
    assert bench.schedule.requests[-1].capacity == 0
    assert bench.schedule.waiting == [C]
    bench.merger.gate.set()
    bench.schedule.wait_for(lambda: len(bench.schedule.results) == 3)


@pytest.mark.parametrize(
    ("memory_bytes", "capacity"),
    [(TASK_MEMORY_BYTES * 3, 3), (TASK_MEMORY_BYTES * 3 - 1, 2), (TASK_MEMORY_BYTES * 99, 8), (1, 1)],
)
def test_capacity_is_limited_by_memory(memory_bytes: int, capacity: int) -> None:
    bench = Bench(SETTINGS.model_copy(update={"NODE_CAPACITY": 8, "NODE_MEMORY_BYTES": memory_bytes}))
    bench.start()
    bench.schedule.wait_for(lambda: bench.schedule.requests and bench.schedule.requests[-1].capacity)
    assert bench.schedule.requests[-1].capacity == capacity
    bench.close()


def test_a_node_whose_merger_is_not_ready_takes_no_work_but_polls(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.node.RESTART_SECONDS", 0.2)
    bench.merger.start_trouble = [RuntimeError("unequal versions")]
    bench.schedule.offer(A)
    bench.start()
    bench.schedule.wait_for(lambda: bench.schedule.results)
    assert bench.schedule.requests[0].capacity == 0


def test_a_running_job_is_renewed_with_its_progress(bench: Bench) -> None:
    bench.merger.gate.clear()
    bench.schedule.offer(A)
    bench.start()
    bench.merger.wait_entered()
    bench.schedule.wait_for_polls(2)
    (update,) = bench.schedule.requests[-1].updates
    assert update.status is UpdateStatus.IN_PROGRESS
    assert update.progress == Progress(done=1, total=2, phase="merge")


def test_a_lost_lease_interrupts_the_run_and_reports_nothing(bench: Bench) -> None:
    bench.merger.gate.clear()
    bench.schedule.offer(A)
    bench.start()
    bench.merger.wait_entered()
    bench.schedule.revoke(A)
    bench.schedule.wait_for(lambda: bench.merger.interrupted)
    bench.courier.join()
    bench.schedule.wait_for_polls(2)
    assert bench.schedule.requests[-1].updates == ()
    assert bench.schedule.requests[-1].capacity == 2
    assert bench.schedule.results == {}


def test_one_lost_job_of_a_batch_does_not_interrupt_the_others(bench: Bench) -> None:
    bench.merger.gate.clear()
    bench.schedule.offer(A, B)
    bench.start()
    bench.merger.wait_entered()
    bench.schedule.revoke(A)
    bench.schedule.wait_for_polls(2)
    assert bench.merger.interrupted == []
    bench.merger.gate.set()
    bench.schedule.wait_for(lambda: bench.schedule.results)
    assert list(bench.schedule.results) == [B]


def test_a_lease_that_no_poll_could_renew_interrupts_the_run_which_is_given_back_later(bench: Bench) -> None:
    bench.schedule.lease_seconds = 0.3
    bench.merger.gate.clear()
    bench.schedule.offer(A)
    bench.start()
    bench.merger.wait_entered()
    bench.schedule.trouble = ServiceUnavailable("gone")
    bench.schedule.wait_for(lambda: bench.merger.interrupted)
    bench.schedule.trouble = None
    bench.schedule.wait_for(lambda: bench.schedule.released)
    assert bench.schedule.released[0].reason is None


def test_a_result_survives_polls_without_an_answer(bench: Bench) -> None:
    bench.merger.gate.clear()
    bench.schedule.offer(A)
    bench.start()
    bench.merger.wait_entered()
    bench.schedule.trouble = ServiceUnavailable("gone")
    bench.merger.gate.set()
    bench.schedule.wait_for_polls(3)
    bench.schedule.trouble = None
    bench.schedule.wait_for(lambda: bench.schedule.results)


def test_a_failed_job_is_given_back_with_what_where_and_which_build(bench: Bench) -> None:
    bench.merger.outcomes["job-a"] = ChecksumMismatch("symbols", 17, "crc differs", "blocks/1/x/y/block.bin")
    bench.merger.outcomes["job-b"] = ObjectNotFound("get", "segments/1/z", "no such object")
    bench.schedule.offer(A, B)
    bench.start()
    bench.schedule.wait_for(lambda: len(bench.schedule.released) == 2)
    first, second = (update.reason for update in bench.schedule.released)
    assert first is not None
    assert second is not None
    assert (first.error_class, first.object, first.section, first.offset) == (
        "ChecksumMismatch",
        "blocks/1/x/y/block.bin",
        "symbols",
        17,
    )
    assert first.build
    assert (second.error_class, second.object) == ("ObjectNotFound", "segments/1/z")


def test_a_bad_job_does_not_stop_its_neighbour(bench: Bench) -> None:
    bench.merger.outcomes["job-a"] = ChecksumMismatch("symbols", 17, "crc differs")
    bench.schedule.offer(A, B)
    bench.start()
    bench.schedule.wait_for(lambda: bench.schedule.results and bench.schedule.released)
    assert list(bench.schedule.results) == [B]


def test_a_crashed_merge_fails_its_batch_and_the_node_continues(bench: Bench) -> None:
    bench.merger.crash = RuntimeError("the session died")
    bench.schedule.offer(A, B)
    bench.start()
    bench.schedule.wait_for(lambda: len(bench.schedule.released) == 2)
    assert {update.reason.message for update in bench.schedule.released if update.reason} == {"the session died"}
    bench.merger.crash = None
    bench.schedule.offer(C)
    bench.schedule.wait_for(lambda: bench.schedule.results)


def test_a_dead_merger_fails_its_jobs_and_no_more_are_requested(bench: Bench) -> None:
    died: list[bool] = []
    bench.node.on_merger_died = lambda: died.append(True)
    bench.merger.crash = MergerDied("Spark is gone")
    bench.schedule.offer(A)
    bench.start()
    bench.schedule.wait_for(lambda: bench.schedule.released)
    assert bench.schedule.released[0].reason is not None
    assert bench.schedule.released[0].reason.error_class == "MergerDied"
    bench.courier.join()
    assert died == [True]
    bench.schedule.wait_for_polls(2)
    assert bench.schedule.requests[-1].capacity == 0


def test_a_merge_that_forgets_a_job_fails_that_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.merger, "merge", lambda *_, **__: {})
    bench.schedule.offer(A)
    bench.start()
    bench.schedule.wait_for(lambda: bench.schedule.released)
    assert bench.schedule.released[0].reason is not None
    assert bench.schedule.released[0].reason.error_class == "ResultMissing"


def test_jobs_with_a_refused_message_are_released_and_no_more_are_requested(bench: Bench) -> None:
    bench.courier.refuses = True
    bench.schedule.offer(A, B)
    bench.start()
    bench.schedule.wait_for(lambda: len(bench.schedule.released) == 2)
    assert all(update.reason is None for update in bench.schedule.released)
    bench.schedule.wait_for_polls(2)
    assert bench.schedule.requests[-1].capacity == 0
    bench.courier.refuses = False
    bench.schedule.offer(C)
    bench.schedule.wait_for(lambda: bench.schedule.results)
    assert bench.courier.probes > 0


def test_jobs_whose_message_never_arrives_are_given_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.node.MESSAGE_SECONDS_MAX", 0.1)
    bench.courier.deliveries = 0
    bench.schedule.offer(A)
    bench.start()
    bench.schedule.wait_for(lambda: bench.schedule.released)
    assert bench.schedule.released[0].reason is None


def test_a_clean_stop_gives_running_jobs_back_at_once_and_counts_no_failure(bench: Bench) -> None:
    bench.merger.gate.clear()
    bench.schedule.offer(A)
    bench.start()
    bench.merger.wait_entered()
    bench.node.close()
    assert [update.reason for update in bench.schedule.released] == [None]
    assert bench.schedule.requests[-1].capacity == 0
    assert bench.schedule.leased == set()


def test_a_clean_stop_does_not_wait_for_a_run_that_does_not_notice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.node.STOP_SECONDS_MAX", 0.1)
    monkeypatch.setattr(bench.merger, "interrupt", lambda batch: None)
    bench.merger.gate.clear()
    bench.schedule.offer(A)
    bench.start()
    bench.merger.wait_entered()
    bench.node.close()
    assert len(bench.schedule.released) == 1


def test_reports_the_service_calls_malformed_do_not_block_the_next_poll(bench: Bench) -> None:
    bench.merger.gate.clear()
    bench.schedule.offer(A)
    bench.start()
    bench.merger.wait_entered()
    bench.schedule.trouble = PollRefused("result: too long")
    bench.merger.gate.set()
    bench.courier.join()
    bench.schedule.wait_for_polls(2)
    bench.schedule.trouble = None
    bench.schedule.wait_for_polls(2)
    assert bench.schedule.requests[-1].updates == ()
    assert bench.schedule.requests[-1].capacity == 2


def test_a_mistake_in_one_poll_does_not_end_the_loop(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([ZeroDivisionError("a mistake")])

    def poll(request: object) -> PollResponse:
        for mistake in answers:
            raise mistake
        return bench.schedule.__class__.poll(bench.schedule, request)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.schedule, "poll", poll)
    bench.schedule.offer(A)
    bench.start()
    bench.schedule.wait_for(lambda: bench.schedule.results)


def test_a_wake_up_polls_now() -> None:
    bench = Bench(SETTINGS.model_copy(update={"POLL_SECONDS": 60}))
    bench.start()
    bench.schedule.wait_for(lambda: bench.schedule.requests and bench.schedule.requests[-1].capacity)
    bench.schedule.offer(A)
    bench.node.wake()
    bench.schedule.wait_for(lambda: bench.schedule.results)
    bench.close()


def test_after_a_lost_answer_polls_carry_the_last_serial_received(bench: Bench) -> None:
    node, schedule = bench.node, bench.schedule
    schedule.serial = 41
    node.poll_once()
    schedule.trouble = ServiceUnavailable("gone")
    node.poll_once()
    schedule.trouble = None
    schedule.serial = 43
    node.poll_once()
    node.poll_once()
    assert [request.last_serial for request in schedule.requests] == [0, 0, 41, 43]


def test_while_a_run_is_stopping_polls_carry_no_serial(bench: Bench) -> None:
    bench.schedule.serial = 41
    bench.schedule.lease_seconds = 0.3
    bench.merger.gate.clear()
    bench.merger.ignores_stops = True
    bench.schedule.offer(A)
    bench.start()
    bench.merger.wait_entered()
    bench.schedule.wait_for(lambda: bench.schedule.requests[-1].updates)
    bench.schedule.trouble = ServiceUnavailable("gone")
    bench.schedule.wait_for(lambda: not bench.schedule.requests[-1].updates)
    bench.schedule.trouble = None
    bench.schedule.wait_for_polls(2)
    assert bench.schedule.requests[-1].last_serial == 0
    bench.merger.gate.set()
    bench.schedule.wait_for(lambda: bench.schedule.requests[-1].last_serial == 41)
