"""Jobs that have failed, for operators to deal with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.protocol.messages import FailureReason
from engine.schedule.model import JobState
from tests.webadmin.service import REASON, Service, check_invariants
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.models import Job

FAILURES_MAX = 3
CONTEXT = ActionContext(actor="operator", why="it was the disk")


@pytest.fixture
def context() -> ActionContext:
    return CONTEXT


@pytest.fixture
def dry() -> ActionContext:
    return replace(CONTEXT, is_dry_run=True)


@pytest.fixture(autouse=True)
def _invariants_hold_at_the_end(service: Service):
    yield
    check_invariants()


@pytest.fixture
def evicted(service: Service) -> Callable[..., Job]:
    """Return a function that plans a job over fresh segments and lets it fail until the schedule parks it."""

    def evict(*, shard: int = 1, count: int = 20, reason: FailureReason = REASON) -> Job:
        service.add_segments(count, shard=shard)
        worker = service.worker()
        for _ in range(FAILURES_MAX + 1):
            while not (specs := worker.take()):  # few segments must age first
                service.clock.advance(10)
            [spec] = specs
            worker.poll(worker.released(spec.job, reason), capacity=0)
        job = Job.objects.get(name=spec.job)
        assert job.state == JobState.PARKED
        return job

    return evict
