"""The lease table: what is begun, stopped, reported and forgotten, and when."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.messages import (
    Assignment,
    FailureReason,
    JobUpdate,
    LeaseGrant,
    PollResponse,
    Progress,
    UpdateStatus,
)
from tasks.leases import LeaseTable, Pair

A, B = ("job-a", "token-1"), ("job-b", "token-2")
RESULT = {"blocks": []}
REASON = FailureReason(error_class="BadObject", message="symbols at offset 3: no")


class Clock:
    """A monotonic clock that moves when set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> LeaseTable:
    return LeaseTable(clock)


def assigned(*pairs: Pair, expires_in: float = 15.0) -> PollResponse:
    return PollResponse(
        assignments=tuple(Assignment(job=j, token=t, spec={"job": j}, expires_in=expires_in) for j, t in pairs)
    )


def granted(*pairs: Pair, expires_in: float = 15.0) -> PollResponse:
    return PollResponse(leases=tuple(LeaseGrant(job=j, token=t, expires_in=expires_in) for j, t in pairs))


def statuses(table: LeaseTable) -> dict[Pair, UpdateStatus]:
    return {(update.job, update.token): update.status for update in table.updates()}


def poll(table: LeaseTable, response: PollResponse, clock: Clock) -> tuple[Sequence[Pair], Sequence[Pair]]:
    outcome = table.apply_response(table.updates(), response, clock.now)
    return outcome.assigned, outcome.lost


def test_a_pair_begins_once(table: LeaseTable, clock: Clock) -> None:
    assert poll(table, assigned(A), clock) == ((A,), ())
    assert table.begin(A) is not None
    assert table.begin(A) is None
    assert table.begin(A) is None


def test_a_pair_begins_once_however_many_threads_try(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A), clock)
    barrier = threading.Barrier(8)
    began = []

    def try_to_begin() -> None:
        barrier.wait()
        if table.begin(A):
            began.append(A)

    threads = [threading.Thread(target=try_to_begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert began == [A]


def test_an_unknown_pair_never_begins(table: LeaseTable) -> None:
    assert table.begin(A) is None
    assert not table.finish(A, result=RESULT)
    assert table.updates() == ()


def test_a_running_job_is_reported_with_its_progress(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A), clock)
    table.begin(A)
    table.note_progress(A, Progress(done=3, total=9, phase="merge"))
    (update,) = table.updates()
    assert update.status is UpdateStatus.IN_PROGRESS
    assert update.progress == Progress(done=3, total=9, phase="merge")


def test_a_result_is_reported_until_a_poll_is_answered(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A), clock)
    table.begin(A)
    assert table.finish(A, result=RESULT)
    assert statuses(table) == {A: UpdateStatus.SUCCESS}
    assert statuses(table) == {A: UpdateStatus.SUCCESS}
    poll(table, PollResponse(), clock)
    assert table.updates() == ()


def test_a_failure_is_released_with_its_reason(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A), clock)
    table.begin(A)
    table.finish(A, reason=REASON)
    (update,) = table.updates()
    assert (update.status, update.reason) == (UpdateStatus.RELEASED, REASON)


def test_a_job_that_finished_after_the_poll_was_built_is_reported_by_the_next(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A), clock)
    table.begin(A)
    reported = table.updates()
    table.finish(A, result=RESULT)
    table.apply_response(reported, granted(A), clock.now)
    assert statuses(table) == {A: UpdateStatus.SUCCESS}


def test_a_reported_job_without_a_lease_is_stopped_and_never_reported_again(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A, B), clock)
    table.begin(A)
    assert poll(table, granted(B), clock) == ((), (A,))
    assert table.is_stopped(A)
    assert statuses(table) == {B: UpdateStatus.IN_PROGRESS}
    assert len(table.busy()) == 2, "a run that has not ended still takes up its slot"
    assert not table.finish(A, reason=REASON)
    assert len(table.busy()) == 1
    assert statuses(table) == {B: UpdateStatus.IN_PROGRESS}


def test_a_waiting_job_without_a_lease_is_dropped_at_once(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A), clock)
    assert poll(table, PollResponse(), clock) == ((), ())
    assert table.begin(A) is None
    assert table.busy() == ()


def test_an_answered_poll_moves_the_deadline_from_when_it_was_sent(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A, expires_in=15), clock)
    table.begin(A)
    clock.now += 10
    reported, sent_at = table.updates(), clock.now
    clock.now += 4
    table.apply_response(reported, granted(A, expires_in=15), sent_at)
    clock.now = sent_at + 14.9
    assert table.expire() == ()
    clock.now = sent_at + 15
    assert table.expire() == (A,)


def test_an_unrenewed_lease_stops_the_run_which_is_then_given_back_without_a_reason(
    table: LeaseTable, clock: Clock
) -> None:
    poll(table, assigned(A), clock)
    table.begin(A)
    clock.now += 15
    assert table.expire() == (A,)
    assert table.is_stopped(A)
    assert table.updates() == (), "nothing asks for a lease that was given up"
    assert not table.finish(A, reason=REASON)
    assert table.updates() == (JobUpdate(job=A[0], token=A[1], status=UpdateStatus.RELEASED),)


def test_work_that_ended_just_before_it_noticed_the_stop_is_still_offered(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A), clock)
    table.begin(A)
    table.release()
    table.finish(A, result=RESULT)
    assert statuses(table) == {A: UpdateStatus.SUCCESS}


def test_the_same_job_under_a_new_token_stops_the_old_run_and_starts_anew(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A), clock)
    table.begin(A)
    again = (A[0], "token-9")
    assert poll(table, assigned(again), clock) == ((again,), (A,))
    assert table.is_stopped(A)
    assert table.begin(again) is not None
    assert not table.is_stopped(again)
    table.finish(A, result=RESULT)
    table.finish(again, result=RESULT)
    assert statuses(table) == {again: UpdateStatus.SUCCESS}


def test_a_pair_assigned_twice_is_one_entry(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A), clock)
    table.begin(A)
    outcome = table.apply_response((), assigned(A), clock.now)
    assert outcome.assigned == ()
    assert not table.is_stopped(A)


def test_a_message_that_does_not_arrive_gives_its_job_back(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A, B), clock)
    table.begin(B)
    clock.now += 10
    assert table.overdue(10) == ()
    clock.now += 0.1
    assert table.overdue(10) == (A,)
    assert table.begin(A) is None
    assert statuses(table) == {A: UpdateStatus.RELEASED, B: UpdateStatus.IN_PROGRESS}


def test_giving_all_back_releases_the_waiting_and_stops_the_running(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A, B), clock)
    table.begin(A)
    assert table.release() == (A,)
    assert statuses(table) == {B: UpdateStatus.RELEASED}
    assert not table.wait_until_idle(0)
    assert table.abandon_runs() == (A,)
    assert table.wait_until_idle(0)
    assert statuses(table) == {A: UpdateStatus.RELEASED, B: UpdateStatus.RELEASED}
    assert not table.finish(A, result=RESULT), "the job is given back already"


def test_waiting_for_idle_ends_when_the_last_run_does(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A), clock)
    table.begin(A)
    finisher = threading.Timer(0.05, lambda: table.finish(A, result=RESULT))
    finisher.start()
    assert table.wait_until_idle(10)
    finisher.join()


def test_reports_the_service_cannot_read_are_forgotten_and_nothing_else(table: LeaseTable, clock: Clock) -> None:
    poll(table, assigned(A, B), clock)
    table.begin(A)
    table.finish(A, result=RESULT)
    table.forget_finished(table.updates())
    assert statuses(table) == {B: UpdateStatus.IN_PROGRESS}


@given(st.data())
def test_whatever_happens_a_pair_runs_once_and_every_held_job_ends(data: st.DataObject) -> None:
    """A random life of the table: runs begin at most once per pair; once all ends and is answered nothing is held."""
    clock = Clock()
    table = LeaseTable(clock)
    pairs = [(f"job-{n}", f"token-{n}") for n in range(4)]
    begun: list[Pair] = []
    for _ in range(data.draw(st.integers(1, 30))):
        pair = data.draw(st.sampled_from(pairs))
        match data.draw(st.sampled_from(["assign", "renew", "begin", "finish", "fail", "tick", "back"])):
            case "assign":
                new = f"token-{data.draw(st.integers(0, 10**6))}"
                pairs.append((pair[0], new))
                table.apply_response((), assigned((pair[0], new)), clock.now)
            case "renew":
                keep = data.draw(st.lists(st.sampled_from(pairs), unique=True))
                table.apply_response(table.updates(), granted(*keep), clock.now)
            case "begin" if table.begin(pair):
                begun.append(pair)
            case "finish":
                table.finish(pair, result=RESULT)
            case "fail":
                table.finish(pair, reason=REASON)
            case "tick":
                clock.now += data.draw(st.floats(0, 20))
                table.expire()
            case "back":
                table.release([pair])
    assert len(begun) == len(set(begun))
    reported = [(update.job, update.token) for update in table.updates()]
    assert len(reported) == len(set(reported))
    table.release()
    for pair in begun:
        table.finish(pair)
    assert table.busy() == ()
    table.apply_response(table.updates(), PollResponse(), clock.now)
    assert table.updates() == ()
