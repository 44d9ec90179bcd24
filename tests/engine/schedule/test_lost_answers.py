"""Jobs whose assignment never reached the worker: returned at once and uncharged, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.protocol.messages import JobUpdate, UpdateStatus
from engine.schedule.model import (
    AttemptOutcome,
    ChangeSet,
    JobState,
    JobView,
    Report,
    ScheduleLimits,
    ScheduleSnapshot,
)
from engine.schedule.prepare import prepare

ME = "me"
HELD = JobView(
    id=1,
    name="lost",
    lane="profiles",
    level=0,
    state=JobState.LEASED,
    token=7,
    worker=ME,
    lease_expires_ms=100,
    failures=2,
)


def run(*reports: Report, last_serial: int = 7, held: JobView = HELD, now_ms: int = 50, **options) -> ChangeSet:
    return prepare(
        ScheduleSnapshot(
            now_ms=now_ms,
            worker=ME,
            capacity=1,
            limits=ScheduleLimits(**options),
            reports=reports,
            reported={held.name: held} if reports else {},
            last_serial=last_serial,
            held=(held,),
            assignable=(held,) if options else (),
        )
    )


def named(token: int | None, status: UpdateStatus = UpdateStatus.IN_PROGRESS) -> Report:
    return Report(update=JobUpdate(job="lost", token="", status=status), token=token)


@pytest.mark.parametrize("last_serial", [7, 8, 1 << 60])
def test_a_job_of_a_lost_answer_is_returned_without_a_failure(last_serial: int) -> None:
    changes = run(last_serial=last_serial)
    [returned] = changes.returned
    assert (returned.job, returned.outcome, returned.failures) == (HELD, AttemptOutcome.RELEASED, 2)
    assert returned.reason is not None
    assert (returned.reason.error_class, returned.parked_reason) == ("AnswerLost", "")
    assert not changes.assigned, "it is given out by another poll"


def test_a_request_that_was_sent_before_a_later_answer_came_returns_nothing() -> None:
    """A repeated or belated request, and one of a worker that has just begun: the answer may still arrive."""
    assert run(last_serial=6) == run(last_serial=0) == ChangeSet()


def test_a_job_named_under_its_token_is_updated_by_its_status() -> None:
    assert [renewal.job for renewal in run(named(7)).renewed] == [HELD]
    assert run(named(7)).returned == ()
    assert len(run(named(7, UpdateStatus.RELEASED)).returned) == 1


@pytest.mark.parametrize("token", [6, None])
def test_a_job_named_under_another_token_is_not_the_one_that_was_assigned(token: int | None) -> None:
    changes = run(named(token))
    assert (changes.renewed, [returned.job for returned in changes.returned]) == ((), [HELD])


def test_a_lease_that_is_over_counts_as_before() -> None:
    assert run(now_ms=101) == ChangeSet()


@pytest.mark.parametrize(
    "changes", [{"worker": "other"}, {"state": JobState.WAITING}, {"state": JobState.PARKED}, {"token": 9}]
)
def test_what_is_not_this_workers_lease_stays_as_it_is(changes: dict) -> None:
    assert run(held=replace(HELD, **changes)) == ChangeSet()
