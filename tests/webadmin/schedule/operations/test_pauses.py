"""Pausing and draining parts of the schedule: nothing starts there, running jobs continue, the rest is not affected."""

from __future__ import annotations

import pytest

from engine.schedule.errors import ScopeRefused
from engine.schedule.limits import EVERYTHING, Scope, ScopeKind
from engine.schedule.pauses import PausedScope, PauseMode
from tests.webadmin.service import Service
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import Pause
from webadmin.schedule.pauses import paused_scopes
from webadmin.schedule.services.pause_schedule import pause, resume

SEGMENTS = Scope(ScopeKind.TENANT, "")
COVERING = [EVERYTHING, SEGMENTS, Scope(ScopeKind.LANE, "profiles"), Scope(ScopeKind.LEVEL, "0")]
OTHERS = [Scope(ScopeKind.TENANT, "acme"), Scope(ScopeKind.LANE, "tsdb"), Scope(ScopeKind.LEVEL, "1")]


@pytest.mark.parametrize("scope", COVERING, ids=str)
@pytest.mark.parametrize("mode", list(PauseMode))
def test_nothing_is_planned_in_a_paused_or_draining_scope(
    service: Service, context: ActionContext, scope: Scope, mode: PauseMode
) -> None:
    service.add_segments(20)
    pause(scope=scope, mode=mode, context=context)
    worker = service.worker()
    assert worker.take() == []
    assert service.states() == {"queued": 20}
    resume(scope=scope, context=context)
    assert len(worker.take()) == 1


@pytest.mark.parametrize("scope", OTHERS, ids=str)
def test_work_outside_the_scope_is_assigned(service: Service, context: ActionContext, scope: Scope) -> None:
    pause(scope=scope, context=context)
    service.add_segments(20)
    assert len(service.worker().take()) == 1


@pytest.mark.parametrize("scope", COVERING, ids=str)
def test_a_pause_leaves_waiting_jobs_and_a_drain_finishes_them(
    service: Service, context: ActionContext, scope: Scope
) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.released(spec.job), capacity=0)
    outcome = pause(scope=scope, context=context)
    assert (outcome.waiting_jobs, outcome.queued_blocks) == (1, 0)
    assert worker.take() == []
    pause(scope=scope, mode=PauseMode.DRAIN, context=context)
    assert [spec.job for spec in worker.take()] == [Job.objects.get().name]


def test_running_jobs_renew_and_complete_during_a_pause(service: Service, context: ActionContext) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    pause(scope=EVERYTHING, context=context)
    assert len(worker.poll(worker.running(spec.job), capacity=0).leases) == 1
    worker.poll(worker.success(spec.job), capacity=0)
    assert service.states() == {"replaced": 20, "queued": 1}


def test_a_pause_for_some_seconds_ends_by_itself(service: Service, context: ActionContext) -> None:
    service.add_segments(20)
    outcome = pause(scope=EVERYTHING, context=context, for_seconds=30)
    assert paused_scopes(outcome.valid_until_ms - 1) == (PausedScope(ScopeKind.GLOBAL),)
    assert paused_scopes(outcome.valid_until_ms) == ()
    worker = service.worker()
    for _ in range(4):
        service.clock.advance(10)
        worker.poll(capacity=1)
    assert read_time().now_ms >= outcome.valid_until_ms
    assert Job.objects.count() == 1


def test_a_pause_that_has_run_out_can_be_given_again(service: Service, context: ActionContext) -> None:
    pause(scope=EVERYTHING, context=context, for_seconds=5)
    service.clock.advance(6)
    service.add_segments(1)
    pause(scope=EVERYTHING, context=context)
    assert Pause.objects.filter(ended_at_ms=None).count() == 1
    assert Pause.objects.count() == 2


def test_pausing_and_resuming_twice_changes_nothing(service: Service, context: ActionContext) -> None:
    assert pause(scope=EVERYTHING, context=context).command_index is not None
    before = service.dump()
    assert pause(scope=EVERYTHING, context=context).command_index is None
    assert service.dump() == before
    assert resume(scope=EVERYTHING, context=context).command_index is not None
    before = service.dump()
    assert resume(scope=EVERYTHING, context=context).command_index is None
    assert service.dump() == before
    assert list(AuditEntry.objects.order_by("id").values_list("action", flat=True)) == ["pause", "resume"]


def test_a_dry_run_counts_queued_blocks_and_pauses_nothing(service: Service, dry: ActionContext) -> None:
    service.add_segments(7)
    assert pause(scope=SEGMENTS, context=dry).queued_blocks == 7
    assert paused_scopes() == ()
    assert not Pause.objects.exists()


def test_a_single_job_is_not_paused(service: Service, context: ActionContext) -> None:
    with pytest.raises(ScopeRefused):
        pause(scope=Scope(ScopeKind.JOB, "j"), context=context)
    with pytest.raises(ScopeRefused):
        pause(scope=Scope(ScopeKind.LEVEL, "high"), context=context)
