"""Polls whose answers are lost, repeated or late: what they assigned comes back at once, what runs is not taken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.protocol.messages import JobUpdate, PollRequest, PollResponse
from tests.webadmin.service import FakeWorker, Service, check_invariants
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.services import poll


@pytest.fixture(autouse=True)
def _invariants_hold_at_the_end(service: Service) -> Iterator[None]:
    yield
    check_invariants()


def ask(worker: FakeWorker, *updates: JobUpdate, last_serial: int, capacity: int = 1) -> PollResponse:
    """Poll; the caller decides whether the worker gets the answer."""
    request = PollRequest(worker=worker.name, build="test", capacity=capacity, updates=updates, last_serial=last_serial)
    return poll(request=request, credential=worker.credential, at=worker.service.people_time())


def test_the_second_poll_after_a_lost_answer_returns_its_job_and_the_third_gets_it_again(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    first = worker.poll(capacity=0)
    lost = ask(worker, last_serial=0)
    later = ask(worker, last_serial=first.serial, capacity=0)
    assert Job.objects.get().state == "leased", "that answer might still have come when this was sent"
    assert later.serial >= Job.objects.get().token > first.serial
    assert ask(worker, last_serial=later.serial).assignments == ()
    job = Job.objects.get()
    assert (job.state, job.failures, job.lease_expires_ms) == ("waiting", 0, None)
    [again] = ask(worker, last_serial=later.serial).assignments
    assert (again.job, Job.objects.get().failures) == (lost.assignments[0].job, 0)
    assert again.token != lost.assignments[0].token
    attempt = Attempt.objects.order_by("id").first()
    assert attempt is not None
    assert (attempt.outcome, attempt.reason["error_class"]) == ("released", "AnswerLost")


def test_reports_under_a_lost_token_are_refused(service: Service) -> None:
    """Fencing does not rest on the worker's word: one that last_serial the answer after all cannot report under it."""
    service.add_segments(20)
    worker = service.worker()
    worker.take()
    [job] = worker.held
    ask(worker, last_serial=worker.poll(worker.running(job), capacity=0).serial, capacity=0)
    before = service.dump()
    assert worker.poll(worker.success(job), capacity=0).leases == ()
    assert service.dump() == before


def test_repeated_and_late_requests_take_nothing_from_a_running_worker(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    last_serial = worker.poll(capacity=0).serial
    late = PollRequest(worker=worker.name, build="test", capacity=0, last_serial=last_serial)
    worker.take()
    [job] = worker.held
    for _ in range(2):
        poll(request=late, credential=worker.credential, at=service.people_time())
    assert len(worker.poll(worker.running(job), capacity=0).leases) == 1


def test_a_worker_that_began_anew_pays_for_the_job_that_may_have_ended_it(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    worker.take()
    answer = ask(worker, last_serial=0, capacity=0)
    assert Job.objects.get().state == "leased"
    assert answer.serial >= Job.objects.get().token
    service.clock.advance(15)
    service.worker().take()
    service.clock.advance(2)
    service.worker().take()
    assert Job.objects.get().failures == 1


def test_another_workers_jobs_are_not_touched(service: Service) -> None:
    service.add_segments(20)
    service.worker().take()
    ask(service.worker(), last_serial=1 << 60, capacity=0)
    assert Job.objects.get().state == "leased"
