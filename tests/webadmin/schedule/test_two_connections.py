"""Several workers and writers at once, each on a connection of its own: who wins, and that nothing is lost."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from django.db import DataError, connection, transaction

from engine.lanes.profiles.jobs import KIND
from engine.protocol.messages import PollRequest
from engine.schedule.model import CreateJob, JobState
from engine.schedule.prepare import prepare
from tests.block_factory import block_meta, segment_ids
from tests.webadmin.service import FakeWorker, Service, check_invariants
from webadmin.base.database.advisory_lock import advisory_lock
from webadmin.base.database.dialect import execute_deferred, wait_for_disk
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.services.insert_blocks import intern_names
from webadmin.schedule.command_log import take_head
from webadmin.schedule.errors import StaleSnapshot
from webadmin.schedule.models import Command, Job, Limits, LogHead, Worker
from webadmin.schedule.polls import view as poll_view
from webadmin.schedule.services.apply_change_set import ApplyContext, apply_change_set

DEADLINE_SECONDS = 60


@pytest.fixture
def has_advisory_locks(real_service: Service) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer and no advisory locks")


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """Run each action in a thread with its own connection, all released at the same moment; return their results."""
    gate = threading.Barrier(len(actions))

    def run(action: Callable[[], Any]) -> Any:
        try:
            gate.wait(DEADLINE_SECONDS)
            return action()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(actions)) as pool:
        return [future.result(DEADLINE_SECONDS) for future in [pool.submit(run, action) for action in actions]]


def tokens(workers: Sequence[FakeWorker]) -> list[tuple[str, str]]:
    return [(job, held.token) for worker in workers for job, held in worker.held.items()]


@pytest.mark.row("S32")
def test_one_free_job_goes_to_exactly_one_of_two_pollers(real_service: Service) -> None:
    workers = [real_service.worker(), real_service.worker()]
    for round_number in range(3):
        real_service.add_segments(20, shard=round_number + 1)
        at_once(*(worker.take for worker in workers))
        assert len(tokens(workers)) == round_number + 1
    assert Job.objects.count() == 3
    check_invariants()


def test_many_pollers_and_writers_share_the_work_without_loss(real_service: Service) -> None:
    workers = [real_service.worker() for _ in range(3)]
    batches = [segment_ids(real_service.clock.now_ms, 20, first=1000 * n) for n in range(6)]

    def write(ids: Sequence[str]) -> None:
        real_service.add(*(block_meta(block_id, shard=1 + int(ids is batches[0])) for block_id in ids))

    def work(worker: FakeWorker) -> None:
        for _ in range(6):
            done = [worker.success(job) for job in worker.held]
            worker.held = {}
            worker.poll(*done, capacity=2)

    at_once(*(lambda ids=ids: write(ids) for ids in batches), *(lambda w=worker: work(w) for worker in workers))
    for worker in workers:
        work(worker)
    check_invariants()
    assert Block.objects.filter(level=0, state="replaced").count() == 120
    assert Block.objects.filter(level=1).count() == 6


def test_the_same_block_from_two_writers_is_accepted_once(real_service: Service) -> None:
    metas = [block_meta(block_id) for block_id in segment_ids(real_service.clock.now_ms, 10)]
    outcomes = at_once(lambda: real_service.add(*metas), lambda: real_service.add(*reversed(metas)))
    assert sorted(len(outcome.accepted) for outcome in outcomes) == [0, 10]
    assert sum(len(outcome.duplicates) for outcome in outcomes) == 10
    assert Command.objects.count() == 1
    check_invariants()


def _prepared(service: Service, worker: FakeWorker, *updates, capacity: int = 1):
    """Prepare a poll without applying it."""
    row, _ = Worker.objects.get_or_create(name=worker.name, defaults={"credential": worker.credential})
    request = PollRequest(worker=worker.name, build="", capacity=capacity, updates=updates)
    view = poll_view.read_poll(request, row, worker.credential.key_id)
    context = ApplyContext(
        worker=row,
        limits=view.opening.limits,
        swaps=view.reported.swaps,
        prepared={KIND: intern_names([result for swap in view.reported.swaps.values() for result in swap.results])},
        plans=view.plans,
    )
    return prepare(view.snapshot), context


@pytest.mark.row("P19")
def test_preparing_changes_nothing(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    _prepared(service, worker)
    before = service.dump()
    change_set, _ = _prepared(service, worker)
    assert change_set.changes_plan()
    assert service.dump() == before


def test_a_change_set_is_applied_once_and_never_twice(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    change_set, context = _prepared(service, worker)
    apply_change_set(change_set, context)
    before = service.dump()
    with pytest.raises(StaleSnapshot):
        apply_change_set(change_set, context)
    assert service.dump() == before


@pytest.mark.row("R4")
def test_a_completion_applied_twice_changes_nothing_more(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    change_set, context = _prepared(service, worker, worker.success(spec.job), capacity=0)
    apply_change_set(change_set, context)
    before = service.dump()
    with pytest.raises(StaleSnapshot):
        apply_change_set(change_set, context)
    assert service.dump() == before
    check_invariants()


def test_a_renewal_between_prepare_and_apply_saves_the_lease(service: Service) -> None:
    service.add_segments(20)
    holder, other = service.worker(), service.worker()
    [spec] = holder.take()
    service.clock.advance(10)
    holder.poll(capacity=0)
    Job.objects.update(lease_expires_ms=1)
    change_set, context = _prepared(service, other)
    assert change_set.assigned
    assert holder.poll(holder.running(spec.job), capacity=0).leases
    with pytest.raises(StaleSnapshot, match="has changed"):
        apply_change_set(change_set, context)
    assert Job.objects.get().worker.name == holder.name


def test_a_poll_that_was_overtaken_prepares_again(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.add_segments(20, shard=1)
    service.add_segments(20, shard=2)
    quick, slow = service.worker(), service.worker()
    overtaken = []

    def read_and_be_overtaken(*arguments):
        view = poll_view.read_poll(*arguments)
        if not overtaken:
            overtaken.append(True)
            quick.take()
        return view

    # The package re-exports the function under its module's name, so the module is only in sys.modules.
    monkeypatch.setattr(sys.modules["webadmin.schedule.services.poll"], "read_poll", read_and_be_overtaken)
    assert len(slow.take()) == 1
    assert len(quick.held) == 1
    assert set(quick.held) != set(slow.held)
    check_invariants()


def test_commands_wait_for_the_holder_of_the_head(real_service: Service) -> None:
    """The second command's time and index come after the first one's, whichever started first."""
    real_service.add_segments(20)
    worker = real_service.worker()
    has_head, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            take_head()
            has_head.set()
            may_go.wait(DEADLINE_SECONDS)

    def overtake() -> list:
        has_head.wait(DEADLINE_SECONDS)
        may_go.set()
        return worker.take()

    _, taken = at_once(hold, overtake)
    assert len(taken) == 1
    check_invariants()


@pytest.mark.parametrize("is_of_lane", [False, True], ids=["everywhere", "lane"])
def test_two_polls_below_the_queue_limit_do_not_both_take_the_last_place(
    real_service: Service, is_of_lane: bool
) -> None:
    for shard in (1, 2, 3):
        real_service.add_segments(20, shard=shard)
    worker = real_service.worker()
    worker.take()
    change_set, context = _prepared(real_service, worker, capacity=2)
    assert len(change_set.created) == 2
    places = 2  # one is taken
    limit: dict[str, Any] = {"limits": Limits(queue_max=places)}
    if is_of_lane:
        limit = {"lane_places": {change_set.created[0].plan.lane: places}}
    context = replace(context, **limit)

    def apply(created: CreateJob) -> str:
        try:
            apply_change_set(replace(change_set, created=(created,)), context)
        except StaleSnapshot as error:
            return str(error)
        return ""

    refused = at_once(*(lambda created=created: apply(created) for created in change_set.created))
    assert sorted("filled" in reason for reason in refused) == [False, True], refused
    assert LogHead.objects.get().live_job_count == places
    check_invariants()


def test_results_of_two_jobs_settle_in_one_poll(service: Service) -> None:
    service.add_segments(20, shard=1)
    service.add_segments(20, shard=2)
    worker = service.worker()
    first, second = worker.take(2)
    worker.poll(worker.success(first.job), worker.success(second.job), capacity=0)
    assert service.states() == {"replaced": 40, "queued": 2}
    assert Command.objects.filter(kind="update_plan").count() == 2
    check_invariants()


def test_a_poll_settles_all_that_it_reports_in_one_command(service: Service) -> None:
    for shard in (1, 2, 3, 4):
        service.add_segments(20, shard=shard)
    worker = service.worker()
    done, running, returned = worker.take(3)
    answer = worker.poll(
        worker.success(done.job), worker.running(running.job), worker.released(returned.job), capacity=4
    )
    assert [lease.job for lease in answer.leases] == [running.job]
    assert {given.job for given in answer.assignments}.isdisjoint({done.job, running.job, returned.job})
    assert len(answer.assignments) == 1
    plans = Command.objects.filter(kind="update_plan").order_by("index").values_list("change_set", flat=True)
    assert [len(plan["completed"]) for plan in plans] == [0, 1]
    assert Job.objects.get(name=returned.job).state == JobState.WAITING
    check_invariants()


@pytest.mark.usefixtures("has_advisory_locks")
def test_one_planner_enters_after_the_other(real_service: Service) -> None:
    entered: list[str] = []
    is_held, may_leave = threading.Event(), threading.Event()

    def first() -> None:
        with advisory_lock(1):
            is_held.set()
            assert may_leave.wait(DEADLINE_SECONDS)
            assert not _is_free(1)
            entered.append("first")

    def second() -> None:
        assert is_held.wait(DEADLINE_SECONDS)
        may_leave.set()
        with advisory_lock(1):
            entered.append("second")

    at_once(first, second)
    assert entered == ["first", "second"]
    assert _is_free(1)


@pytest.mark.usefixtures("has_advisory_locks")
def test_a_lock_is_released_by_a_caller_that_failed(real_service: Service) -> None:
    def fail() -> bool:
        with pytest.raises(DataError, match="division"), advisory_lock(3):
            execute_deferred("SELECT 1 / 0")()
        return _is_free(3)

    assert at_once(fail) == [True]


@pytest.mark.usefixtures("has_advisory_locks")
def test_waiting_for_a_lock_that_is_never_released_times_out(
    real_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder may run on a machine that is frozen or gone; the next lock is available as ever."""
    monkeypatch.setattr(sys.modules["webadmin.base.database.advisory_lock"], "WAIT_MS", 50)
    is_frozen, goes_on = threading.Event(), threading.Event()

    def frozen() -> None:
        with advisory_lock(2):
            is_frozen.set()
            assert goes_on.wait(DEADLINE_SECONDS), "the other one never entered"

    def other() -> int:
        assert is_frozen.wait(DEADLINE_SECONDS)
        with advisory_lock(2):
            goes_on.set()
        return _asked("SELECT 2")

    assert at_once(frozen, other) == [None, 2]
    assert _is_free(2)


def test_answers_are_sent_after_the_command_is_on_disk(real_service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll releases the head before its command is on disk, and answers when it is; one that changes nothing has
    nothing to wait for."""
    if connection.vendor != "postgresql":
        pytest.skip("a commit of SQLite's is on disk")
    committed: list[str] = []

    def wait_and_note() -> None:
        assert not connection.in_atomic_block
        committed.append(_asked("SELECT pg_current_wal_insert_lsn()"))
        wait_for_disk()

    monkeypatch.setattr(sys.modules["webadmin.schedule.services.poll"], "wait_for_disk", wait_and_note)
    real_service.add_segments(40)
    worker = real_service.worker()
    connection.cursor().execute("SET synchronous_commit = on")  # which the server of the tests does without
    try:
        worker.take()
        given = list(worker.held)
        assert given
        assert len(committed) == 1
        worker.poll(*(worker.running(job) for job in given), capacity=0)
        assert len(committed) == 1
        worker.poll(*(worker.success(job) for job in given), capacity=0)
        assert len(committed) == 2
        for place in committed:
            assert _asked(f"SELECT pg_current_wal_flush_lsn() >= '{place}'")
    finally:
        connection.cursor().execute("RESET synchronous_commit")


def _is_free(number: int) -> bool:
    """Whether somebody else could have the lock: tried on a connection of its own."""

    def try_lock() -> bool:
        return bool(_asked(f"SELECT pg_try_advisory_lock({number})") and _asked(f"SELECT pg_advisory_unlock({number})"))

    return at_once(try_lock) == [True]


def _asked(statement: str) -> Any:
    [[value]] = execute_deferred(statement)()
    return value
