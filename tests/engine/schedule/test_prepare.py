"""The scheduler's decisions as a pure function: the scenarios of the reference sheet (S rows), under our policy.

Where a row is marked [R] in the sheet, or our design differs, the test says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.lanes.profiles.jobs import ProfileMergeResult
from engine.lanes.profiles.plan.consolidation import plan_queues
from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, QueuedBlock
from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from engine.schedule.model import (
    ALLOWED_MOVES,
    AttemptOutcome,
    ChangeSet,
    JobState,
    JobView,
    Report,
    ScheduleLimits,
    ScheduleSnapshot,
)
from engine.schedule.prepare import prepare

LIMITS = ScheduleLimits(lease_ms=10_000, failures_max=3)
ME = "me"
REASON = FailureReason(error_class="Truncated", message="too short")
RESULT = ProfileMergeResult(sources=(), blocks=())


def job(name: str, **values) -> JobView:
    return JobView(
        **({"id": int(name), "name": name, "lane": "profiles", "level": 0, "state": JobState.WAITING} | values)
    )


def leased(name: str, **values) -> JobView:
    return job(name, **({"state": JobState.LEASED, "token": 1, "worker": ME} | values))


def report(name: str, status: UpdateStatus, token: int | None = 1, **values) -> Report:
    reason = values.pop("reason", None)
    result = RESULT if status is UpdateStatus.SUCCESS and "refusal" not in values else None
    return Report(
        update=JobUpdate(job=name, token="", status=status, reason=reason), token=token, result=result, **values
    )


def run(
    *reports: Report,
    jobs: list[JobView] = (),
    assignable: list[JobView] = (),
    now: int = 0,
    capacity: int = 0,
    queues: Sequence[BlockQueue] = (),
    **values,
) -> ChangeSet:
    values = {"limits": LIMITS} | values
    return prepare(
        ScheduleSnapshot(
            now_ms=now,
            worker=ME,
            capacity=capacity,
            queues=plan_queues(queues, now_ms=now, job_max=capacity),
            reports=reports,
            reported={view.name: view for view in jobs},
            assignable=tuple(assignable),
            **values,
        )
    )


def assigned(changes: ChangeSet) -> list[tuple[str, int]]:
    return [(assignment.job.name, assignment.failures) for assignment in changes.assigned]


def full_queue(shard: int) -> BlockQueue:
    blocks = (QueuedBlock(id=shard, ulid=f"{shard}", arrived_at_ms=0, created_at_ms=0, size_bytes=1),)
    policy = LevelPolicy(blocks_max=1, age_ms=1, spread_ms=1)
    return BlockQueue(id=shard, lane="profiles", tenant="", shard=shard, level=0, policy=policy, blocks=blocks)


@pytest.mark.row("S1")
def test_a_held_lease_is_renewed() -> None:
    changes = run(report("1", UpdateStatus.IN_PROGRESS), jobs=[leased("1")])
    assert [renewal.job for renewal in changes.renewed] == [leased("1")]
    assert not changes.changes_plan()


@pytest.mark.row("S2", "S6", "S29")
@pytest.mark.parametrize("status", list(UpdateStatus))
@pytest.mark.parametrize("token", [0, 2, 6, None])
def test_reports_with_another_token_are_ignored(status: UpdateStatus, token: int | None) -> None:
    """[R] the reference accepts tokens above the job's own; such a token was never issued."""
    assert run(report("1", status, token), jobs=[leased("1")]) == ChangeSet()


@pytest.mark.row("S3")
def test_a_deleted_job_gets_no_lease() -> None:
    assert run(report("9", UpdateStatus.IN_PROGRESS)) == ChangeSet()


@pytest.mark.row("S28")
@pytest.mark.parametrize("state", [JobState.WAITING, JobState.BLOCKED, JobState.PARKED, JobState.DONE])
@pytest.mark.parametrize("status", list(UpdateStatus))
def test_only_a_leased_job_can_be_reported_on(state: JobState, status: UpdateStatus) -> None:
    """[R] the reference accepts a success for a job without a lease."""
    assert run(report("1", status), jobs=[job("1", state=state, token=1, worker=ME)]) == ChangeSet()


def test_another_workers_job_is_not_ours_to_report_on() -> None:
    assert run(report("1", UpdateStatus.SUCCESS), jobs=[leased("1", worker="other")]) == ChangeSet()


@pytest.mark.row("S5")
def test_a_success_completes_and_can_be_prepared_again() -> None:
    first = run(report("1", UpdateStatus.SUCCESS), jobs=[leased("1")])
    assert [(c.job, c.result) for c in first.completed] == [(leased("1"), RESULT)]
    assert first == run(report("1", UpdateStatus.SUCCESS), jobs=[leased("1")])


@pytest.mark.row("S7")
def test_leases_that_end_now_still_hold_and_priority_decides() -> None:
    """[R] levels have no strict order; the reference's is tried in the scenario files."""
    held = [leased("4"), leased("5")]
    jobs = [job("1", level=1, priority_ms=2), job("3"), job("2", level=2, priority_ms=1), *held]
    assert assigned(run(assignable=jobs, capacity=9)) == [("3", 0), ("2", 0), ("1", 0)]


@pytest.mark.row("S8")
def test_expired_jobs_are_reassigned_unless_no_run_is_left() -> None:
    jobs = [leased("1"), leased("2"), leased("3"), leased("4", lease_expires_ms=10), leased("5", failures=1)]
    changes = run(assignable=[*jobs, leased("6", failures=3)], now=5, capacity=9)
    assert assigned(changes) == [("1", 1), ("2", 1), ("3", 1), ("5", 2)]
    assert changes.returned == ()


@pytest.mark.parametrize(("waited", "parked"), [(10_000, []), (10_001, ["6"])])
def test_a_faulty_job_is_parked_one_lease_after_its_lease(waited: int, parked: list[str]) -> None:
    """Until then its worker, late as it is, may still succeed; after that no worker holds it."""
    view = leased("6", failures=3, lease_expires_ms=5)
    changes = run(assignable=[view], now=5 + waited, capacity=0)
    assert [(r.job.name, r.outcome) for r in changes.returned] == [(name, AttemptOutcome.EXPIRED) for name in parked]
    assert all(r.parked_reason for r in changes.returned)


@pytest.mark.row("S9", "S10")
@pytest.mark.parametrize("status", [UpdateStatus.IN_PROGRESS, UpdateStatus.SUCCESS])
def test_jobs_reported_in_a_request_are_not_assigned_by_it(status: UpdateStatus) -> None:
    jobs = [leased(name) for name in "123"]
    changes = run(*(report(name, status) for name in "123"), jobs=jobs, assignable=jobs, now=20_000, capacity=3)
    assert changes.assigned == ()
    assert len(changes.renewed) + len(changes.completed) == 3


@pytest.mark.row("S11")
def test_a_worker_without_reports_is_assigned_its_expired_jobs_again() -> None:
    jobs = [leased(name) for name in "123"]
    assert assigned(run(assignable=jobs, now=20_000, capacity=9)) == [("1", 1), ("2", 1), ("3", 1)]


@pytest.mark.row("S12")
def test_planned_jobs_are_created_for_this_worker() -> None:
    changes = run(queues=tuple(full_queue(shard) for shard in (1, 2, 3)), now=9, capacity=2)
    assert len(changes.created) == 2


@pytest.mark.row("S13")
def test_the_queue_limit_declines_new_jobs() -> None:
    queues = tuple(full_queue(shard) for shard in (1, 2, 3))
    limits = replace(LIMITS, queue_max=2)
    assert len(run(queues=queues, now=9, capacity=9, limits=limits).created) == 2
    assert len(run(queues=queues, now=9, capacity=9, limits=limits, live_job_count=1).created) == 1
    assert len(run(queues=queues, now=9, capacity=9, limits=limits, live_job_count=7).created) == 0
    assert (
        len(run(queues=queues, now=9, capacity=9, limits=replace(limits, queue_max=0), live_job_count=7).created) == 3
    )


@pytest.mark.row("S18")
def test_a_queue_full_of_faulty_jobs_makes_room_for_new_ones() -> None:
    """[R] the reference stalls; here a faulty job is parked and its place is free in the same poll."""
    faulty = [leased(name, failures=3) for name in "12"]
    limits = replace(LIMITS, queue_max=2)
    changes = run(assignable=faulty, queues=(full_queue(1),), now=9, capacity=1, limits=limits, live_job_count=2)
    assert [r.job.name for r in changes.returned] == ["1"], "one for each job that is added"
    assert len(changes.created) == 1
    assert run(assignable=faulty, now=9, capacity=1, limits=limits, live_job_count=2) == ChangeSet()


@pytest.mark.row("S31")
def test_heads_of_the_queue_do_not_protect_faulty_jobs() -> None:
    """[R] the reference looks at the head of a level only, and needs the queue to be above its limit."""
    faulty = [leased(name, failures=3) for name in "678"]
    waiting = [job(name) for name in "12345"]
    limits = replace(LIMITS, queue_max=8)
    changes = run(
        assignable=[*waiting, *faulty], queues=(full_queue(1),), now=9, capacity=6, limits=limits, live_job_count=8
    )
    assert (len(changes.assigned), len(changes.created), len(changes.returned)) == (5, 1, 1)


@pytest.mark.row("S25")
def test_the_owner_of_a_last_run_may_still_succeed() -> None:
    view = leased("1", failures=3, lease_expires_ms=10)
    assert run(report("1", UpdateStatus.SUCCESS), jobs=[view]).completed[0].job == view


@pytest.mark.row("S26")
def test_without_a_failure_limit_an_expired_job_is_always_reassigned() -> None:
    changes = run(assignable=[leased("1", failures=1000)], now=1, capacity=1, limits=replace(LIMITS, failures_max=0))
    assert assigned(changes) == [("1", 1001)]


@pytest.mark.row("S27")
def test_a_lease_holds_until_its_very_end() -> None:
    view = leased("1", lease_expires_ms=50)
    assert assigned(run(assignable=[view], now=50, capacity=1)) == []
    assert assigned(run(assignable=[view], now=51, capacity=1)) == [("1", 1)]


def test_waiting_jobs_run_even_with_all_failures_used() -> None:
    """Runs are one more than failures: a job given back for the third time still has its fourth run."""
    assert assigned(run(assignable=[job("1", failures=3)], capacity=1)) == [("1", 3)]


@pytest.mark.parametrize(
    ("failures", "reason", "outcome", "after", "is_parked"),
    [
        (0, None, AttemptOutcome.RELEASED, 0, False),
        (3, None, AttemptOutcome.RELEASED, 3, False),
        (0, REASON, AttemptOutcome.FAILED, 1, False),
        (2, REASON, AttemptOutcome.FAILED, 3, False),
        (3, REASON, AttemptOutcome.FAILED, 3, True),
    ],
)
def test_a_return_counts_as_a_failure_only_with_a_reason(failures, reason, outcome, after, is_parked) -> None:
    view = leased("1", failures=failures)
    [returned] = run(report("1", UpdateStatus.RELEASED, reason=reason), jobs=[view]).returned
    assert (returned.outcome, returned.failures, bool(returned.parked_reason)) == (outcome, after, is_parked)


def test_a_refused_result_is_a_failure_with_its_own_outcome() -> None:
    [returned] = run(report("1", UpdateStatus.SUCCESS, refusal=REASON), jobs=[leased("1")]).returned
    assert (returned.outcome, returned.failures, returned.reason) == (AttemptOutcome.REFUSED, 1, REASON)


def test_only_the_first_of_two_valid_reports_on_a_job_counts() -> None:
    reports = [report("1", UpdateStatus.SUCCESS), report("1", UpdateStatus.RELEASED)]
    changes = run(*reports, jobs=[leased("1")])
    assert (len(changes.completed), len(changes.returned)) == (1, 0)


def test_the_least_priority_comes_first_and_names_decide_last() -> None:
    jobs = [job("1", priority_ms=5), job("2", priority_ms=3), job("3", priority_ms=3), job("4", priority_ms=9)]
    assert [name for name, _ in assigned(run(assignable=jobs, capacity=9))] == ["2", "3", "1", "4"]


def test_a_jobs_own_failure_limit_wins_over_the_global_one() -> None:
    jobs = [leased("1", failures=4, failures_max=5), leased("2", failures=1, failures_max=1)]
    jobs.append(leased("3", failures=9, failures_max=0))
    assert assigned(run(assignable=jobs, now=9, capacity=9)) == [("1", 5), ("3", 10)]


def test_assigned_and_created_together_stay_within_capacity() -> None:
    changes = run(assignable=[job("1"), job("2")], queues=tuple(map(full_queue, range(9))), now=9, capacity=5)
    assert (len(changes.assigned), len(changes.created)) == (2, 3)


def test_a_done_job_never_moves_again_and_every_state_is_listed() -> None:
    assert set(ALLOWED_MOVES) == set(JobState)
    assert ALLOWED_MOVES[JobState.DONE] == frozenset()
