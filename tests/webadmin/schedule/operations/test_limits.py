"""Limits at run time: who set what, for how long, what holds now; and that the schedule obeys at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from engine.schedule.errors import LimitRefused, ScopeRefused
from engine.schedule.limits import EVERYTHING, LimitName, Scope, ScopeKind
from engine.schedule.model import JobState
from tests.webadmin.service import REASON, Service
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.command_log import read_time
from webadmin.schedule.errors import DurationRefused
from webadmin.schedule.models import Command, Job
from webadmin.schedule.operation_models import LimitChange
from webadmin.schedule.queries import effective_limits, limits_now
from webadmin.schedule.services.change_limit import LimitOutcome, change_limit, limit_in_force
from webadmin.schedule.services.pause_schedule import pause

FAILURES = LimitName.FAILURES_MAX
SEGMENTS = Scope(ScopeKind.TENANT, "")
HOUR = 3600
LEASE_SECONDS = 15


@pytest.fixture
def set_limit(service: Service, context: ActionContext) -> Callable[..., LimitOutcome]:
    def set_(value: int | None, scope: Scope = EVERYTHING, name: LimitName = FAILURES, **options: int) -> LimitOutcome:
        return change_limit(name=name, scope=scope, value=value, context=context, **options)

    return set_


def now_ms() -> int:
    return read_time().now_ms


def pass_time(service: Service, seconds: int) -> None:
    """Let command time pass: while blocks wait, polls move it by a lease at most."""
    service.add_segments(1, shard=99)
    worker = service.worker()
    for _ in range(seconds // LEASE_SECONDS + 1):
        service.clock.advance(LEASE_SECONDS + 1)
        worker.poll(capacity=0)


def fail(service: Service, times: int) -> Job:
    service.add_segments(20)
    worker = service.worker()
    for _ in range(times):
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, REASON), capacity=0)
    return Job.objects.get(name=spec.job)


def test_raising_the_error_limit_gives_another_run_at_once(service: Service, set_limit) -> None:
    job = fail(service, 3)
    assert (job.state, job.failures) == (JobState.WAITING, 3)
    outcome = set_limit(10)
    assert (outcome.before, outcome.after) == (3, 10)
    job = fail_again(service)
    assert (job.state, job.failures) == (JobState.WAITING, 4)


def fail_again(service: Service) -> Job:
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.released(spec.job, REASON), capacity=0)
    return Job.objects.get(name=spec.job)


def test_a_limit_for_a_minute_falls_back_by_itself(service: Service, set_limit) -> None:
    outcome = set_limit(10, for_seconds=60)
    assert outcome.valid_until_ms == now_ms() + 60_000
    assert limits_now(outcome.valid_until_ms - 1).failures_max == 10
    assert limits_now(outcome.valid_until_ms).failures_max == 3
    pass_time(service, 60)
    assert limits_now(now_ms()).failures_max == 3
    assert limit_in_force(FAILURES, EVERYTHING, now_ms()) == 3


def test_what_was_set_before_holds_again_after_a_while(service: Service, set_limit) -> None:
    set_limit(5)
    set_limit(10, for_seconds=60)
    pass_time(service, 60)
    assert limits_now(now_ms()).failures_max == 5


def test_a_lasting_value_ends_a_passing_one(service: Service, set_limit) -> None:
    set_limit(10, for_seconds=HOUR)
    set_limit(4)
    assert limits_now(now_ms()).failures_max == 4


def test_the_narrowest_scope_wins(service: Service, set_limit) -> None:
    set_limit(4)
    set_limit(5, Scope(ScopeKind.LANE, "profiles"))
    set_limit(6, Scope(ScopeKind.TENANT, "acme"))
    set_limit(7, Scope(ScopeKind.JOB, "j"))
    limits = effective_limits(now_ms(), tenants=["acme"], jobs=["j"])
    assert [
        limits.value(FAILURES, 3, lane="tsdb", tenant="other"),
        limits.value(FAILURES, 3, lane="profiles", tenant="other"),
        limits.value(FAILURES, 3, lane="profiles", tenant="acme"),
        limits.value(FAILURES, 3, lane="profiles", tenant="acme", job="j"),
    ] == [4, 5, 6, 7]
    assert effective_limits(now_ms()).value(FAILURES, 3, tenant="acme") == 4, "others' values are not even read"


def test_taking_back_a_value_lets_the_wider_scope_hold(service: Service, set_limit) -> None:
    set_limit(6, SEGMENTS)
    outcome = set_limit(None, SEGMENTS)
    assert (outcome.before, outcome.after) == (6, 3)
    assert effective_limits(now_ms(), tenants=[""]).values == {}


def test_a_tenants_limit_is_that_of_its_jobs_only(service: Service, set_limit) -> None:
    set_limit(1, SEGMENTS)
    assert fail(service, 2).state == JobState.PARKED
    set_limit(1, Scope(ScopeKind.TENANT, "acme"))
    set_limit(None, SEGMENTS)
    service.clock.advance(1)
    assert fail(service, 3).state == JobState.WAITING


def test_a_jobs_own_limit_is_that_of_no_other(service: Service, set_limit) -> None:
    job = fail(service, 1)
    set_limit(1, Scope(ScopeKind.JOB, job.name))
    assert fail_again(service).state == JobState.PARKED


def test_the_lease_changes_for_the_next_assignment(service: Service, set_limit) -> None:
    set_limit(60, name=LimitName.LEASE_SECONDS)
    service.add_segments(20)
    service.worker().take()
    job = Job.objects.get()
    assert job.lease_expires_ms == job.assigned_at_ms + 60_000
    assert limits_now(now_ms()).lease_seconds == 60


def test_every_value_stays_in_the_history_with_actor_and_reason(service: Service, set_limit) -> None:
    set_limit(10, for_seconds=HOUR)
    set_limit(4)
    rows = LimitChange.objects.order_by("id").values_list("value", "actor", "why", "is_superseded")
    assert list(rows) == [(10, "operator", "it was the disk", True), (4, "operator", "it was the disk", False)]
    assert AuditEntry.objects.filter(action="change_limit").count() == 2
    assert Command.objects.filter(kind="operate", change_set__action="change_limit").count() == 2


def test_setting_the_same_value_again_changes_nothing(service: Service, set_limit) -> None:
    assert set_limit(10).command_index is not None
    before = service.dump()
    assert set_limit(10).command_index is None
    assert set_limit(None, SEGMENTS).command_index is None
    assert service.dump() == before
    assert LimitChange.objects.count() == 1


def test_a_dry_run_shows_the_values_and_what_follows(service: Service, evicted, dry: ActionContext, set_limit) -> None:
    evicted()
    before = service.dump()
    outcome = change_limit(name=FAILURES, scope=EVERYTHING, value=10, context=dry, for_seconds=HOUR)
    assert service.dump() == before
    assert (outcome.before, outcome.after, outcome.command_index, LimitChange.objects.count()) == (3, 10, None, 0)
    assert outcome.notes == ("1 evicted job failed less often than that: requeue it to give it another run",)
    real = set_limit(10, for_seconds=HOUR)
    assert (real.before, real.after, real.notes) == (outcome.before, outcome.after, outcome.notes)


def test_lowering_the_limit_notes_jobs_on_their_last_run(service: Service, set_limit) -> None:
    fail(service, 2)
    assert set_limit(2).notes == ("1 scheduled job has failed as often: its present run is its last",)


def test_a_queue_limit_below_what_is_scheduled_is_explained(service: Service, set_limit) -> None:
    for shard in (1, 2):
        service.add_segments(20, shard=shard)
    service.worker().take(2)
    outcome = set_limit(1, name=LimitName.QUEUE_MAX)
    assert outcome.notes == ("2 jobs are scheduled: none is added until fewer than 1 are left",)


@pytest.mark.parametrize(
    ("name", "scope", "value"),
    [
        (LimitName.LEASE_SECONDS, EVERYTHING, 0),
        (LimitName.LEASE_SECONDS, Scope(ScopeKind.TENANT, "a"), 5),
        (LimitName.FAILURES_MAX, EVERYTHING, -1),
        (LimitName.QUEUE_MAX, EVERYTHING, 1 << 62),
        (LimitName.WEIGHT, EVERYTHING, 2),
        (LimitName.WEIGHT, Scope(ScopeKind.LANE, "profiles"), 0),
        (LimitName.FAILURES_MAX, Scope(ScopeKind.LEVEL, "1"), 1),
    ],
)
def test_an_impossible_limit_is_refused(
    service: Service, context: ActionContext, name: LimitName, scope: Scope, value: int
) -> None:
    before = service.dump()
    with pytest.raises(LimitRefused):
        change_limit(name=name, scope=scope, value=value, context=context)
    assert service.dump() == before


@pytest.mark.parametrize(
    "scope", [Scope(ScopeKind.GLOBAL, "x"), Scope(ScopeKind.JOB, ""), Scope(ScopeKind.LANE, "a\0")]
)
def test_a_scope_of_nothing_is_refused(service: Service, context: ActionContext, scope: Scope) -> None:
    with pytest.raises(ScopeRefused):
        change_limit(name=FAILURES, scope=scope, value=1, context=context)


@pytest.mark.parametrize("seconds", [0, -1, 1 << 40])
def test_a_limit_lasts_some_time_and_not_for_ever(service: Service, set_limit, seconds: int) -> None:
    with pytest.raises(DurationRefused):
        set_limit(1, for_seconds=seconds)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_lane_that_there_is_not_is_refused(service: Service, context: ActionContext, dry_run: bool) -> None:
    lane, given = Scope(ScopeKind.LANE, "nosuch"), replace(context, is_dry_run=dry_run)
    for act in (partial(change_limit, name=LimitName.RUNNING_MAX, value=1), pause):
        with pytest.raises(ScopeRefused, match="no lane 'nosuch': name one of catalog, profiles, tables, tsdb"):
            act(scope=lane, context=given)


def test_an_unknown_tenant_or_job_is_accepted_with_a_note(
    service: Service, context: ActionContext, dry: ActionContext
) -> None:
    for given in (dry, context):
        for act in (partial(change_limit, name=FAILURES, value=1), pause):
            [note] = act(scope=Scope(ScopeKind.TENANT, "acmee"), context=given).notes
            assert note.startswith("no tenant 'acmee' is known: this holds only once data")
    [note] = change_limit(name=FAILURES, scope=Scope(ScopeKind.JOB, "x"), value=1, context=dry).notes
    assert note.startswith("no job 'x' is known")
    service.add_segments(1, datasets=[("acmee", "web")])
    assert pause(scope=Scope(ScopeKind.TENANT, "acmee"), context=dry).notes == ()
    assert pause(scope=SEGMENTS, context=dry).notes == ()
