"""What operators see of real runs: leases, failures, commands, queues, workers."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from engine.protocol.messages import Progress
from engine.schedule.model import AttemptOutcome, JobState
from tests.database import ManualClock
from tests.webadmin.admin import rows
from tests.webadmin.service import REASON, FakeWorker, Service
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block
from webadmin.schedule.models import Command, Job, Worker


def plain(operator: Client, name: str, *arguments: object, **query: object) -> str:
    """A page as its words."""
    address = reverse(f"admin:{name}", args=arguments)
    text = operator.get(address, {name: str(value) for name, value in query.items()}).content.decode()
    return re.sub(r"[\s\N{NO-BREAK SPACE}]+", " ", re.sub(r"<[^>]+>", " ", text))


def leased_job(service: Service) -> tuple[FakeWorker, Job]:
    service.add_segments(20)
    worker = service.worker("node-7")
    worker.take()
    return worker, Job.objects.get()


def test_a_leased_job_shows_holder_lease_token_and_progress(operator: Client, service: Service) -> None:
    worker, job = leased_job(service)
    service.clock.advance(5)
    worker.poll(worker.running(job.name, Progress(done=3, total=4, phase="symbols")), capacity=0)
    service.clock.advance(6)
    text = plain(operator, "schedule_job_changelist")
    assert f"node-7 9 s left · token {job.token}" in text
    assert "75 %" in text
    assert "20 blocks" in text
    page = plain(operator, "schedule_job_change", job.pk)
    assert "9 s left" in page
    assert "running" in page
    assert job.name in page
    assert page.count("owned") == 20


def test_a_lease_is_over_only_when_its_end_is_past(operator: Client, clock: ManualClock) -> None:
    job = rows.make_job("j", "leased")
    for late_ms, words in ((0, "0 s left"), (1, "over since 0 s"), (2000, "over since 2 s")):
        Job.objects.filter(pk=job.pk).update(lease_expires_ms=rows.now_ms() - late_ms)
        assert words in plain(operator, "schedule_job_changelist")
        in_trouble = operator.get(reverse("admin:schedule_job_changelist"), {"state": "trouble"}).content.decode()
        assert (">lease over</span>" in in_trouble) == (late_ms > 0)


def test_a_failed_run_keeps_its_reason_and_its_commands(operator: Client, service: Service) -> None:
    worker, job = leased_job(service)
    first = job.token
    service.clock.advance(2)
    worker.poll(worker.released(job.name, REASON), capacity=0)
    service.clock.advance(1)
    service.worker("node-8").take()
    page = plain(operator, "schedule_job_change", job.pk)
    assert "ChecksumMismatch: stored 1, found 2 (a/block.bin, offset 7)" in page
    again = Job.objects.get().token
    commands = page.split("Commands for this job")[1].split("Sources")[0]
    returned = Command.objects.filter(index__gt=first, index__lt=again).get()
    assert f"#{first}" in commands
    assert f"#{returned.index}" in commands
    assert f"#{again}" in commands
    assert "returned" in commands
    assert "created" in commands
    assert "assigned" in commands


def test_a_finished_job_shows_its_results_and_the_command_that_swapped_them_in(
    operator: Client, service: Service
) -> None:
    worker, job = leased_job(service)
    service.clock.advance(3)
    worker.poll(worker.success(job.name), capacity=0)
    job.refresh_from_db()
    page = plain(operator, "schedule_job_change", job.pk)
    results = page.split("Results")[1]
    for result in Block.objects.filter(level=1):
        assert result.ulid in results
    assert f"#{job.finished_command_index}" in page
    assert "completed" in page
    assert "Duration of last run 3 s" in page


def test_jobs_are_filtered_by_each_filter(operator: Client) -> None:
    rows.fill()
    names = {job.pk: job.name for job in Job.objects.all()}

    def found(**query: object) -> set[str]:
        text = plain(operator, "schedule_job_changelist", **query)
        return {name for name in names.values() if name in text}

    parked = set(Job.objects.filter(state="parked").values_list("name", flat=True))
    assert found(state="parked") == parked
    assert parked < found(state="trouble") < set(names.values())
    assert found(worker="node-a", state="leased") == set(
        Job.objects.filter(state="leased").values_list("name", flat=True)
    )
    assert found(tenant="acme") == set(Job.objects.filter(tenant="acme").values_list("name", flat=True))
    assert found(level=0, shard=2) == {"0000000000000004-TaS2L0"}
    assert found(q="0000000000000004-TaS2L0") == {"0000000000000004-TaS2L0"}
    assert found(q="0000000000000004") == set()
    assert found(state="nonsense") == set(names.values())


def test_a_filling_queue_shows_what_it_waits_for_and_a_full_one_is_ready(operator: Client, service: Service) -> None:
    service.add_segments(7)
    service.clock.advance(12)
    assert "in 24 s 7 of 20 blocks; ready when full or when the oldest has waited 36 s" in plain(
        operator, "profiles_levelqueue_changelist"
    )
    service.add_segments(13)
    text = plain(operator, "profiles_levelqueue_changelist", fill="ready")
    assert "ready 20 of 20 blocks: full" in text
    queue = LevelQueue.objects.get()
    assert plain(operator, "profiles_levelqueue_change", queue.pk).count("queued") == 20
    assert "Nothing fits" in plain(operator, "profiles_levelqueue_changelist", fill="waiting")


def test_a_queue_is_ready_in_the_words_when_it_is_in_the_planner_s_eyes(operator: Client, service: Service) -> None:
    service.add_segments(3)
    service.clock.advance(10)
    assert "in 26 s" in plain(operator, "profiles_levelqueue_changelist")
    worker = service.worker()
    for _ in range(6):
        service.clock.advance(5)
        worker.poll(capacity=1)
        ready = "the oldest has waited longer" in plain(operator, "profiles_levelqueue_changelist")
        assert not ready, "a ready queue is taken by the poll that sees it"
    assert Job.objects.count() == 1


def test_workers_show_whether_they_are_heard_of(operator: Client) -> None:
    node = rows.make_worker("node-a")
    rows.make_worker("node-b", last_poll_at=node.last_poll_at - timedelta(minutes=5))
    rows.make_worker("node-c", last_poll_at=None)
    gone = rows.make_worker("node-d")
    gone.credential.revoked_at = node.last_poll_at
    gone.credential.save()
    rows.make_job("j", "leased", worker=node)
    text = plain(operator, "schedule_worker_changelist")
    for words in (r"node-a polling \d+ s ago 1 job", "node-b silent 5 min", "node-c new", "node-d revoked"):
        assert re.search(words, text), words
    assert "lease" not in plain(operator, "schedule_worker_change", Worker.objects.get(name="node-c").pk)


def test_a_command_shows_its_change_set_and_the_jobs_in_it(operator: Client, service: Service) -> None:
    _, job = leased_job(service)
    page = plain(operator, "schedule_command_change", job.token)
    assert "created 1" in page
    assert page.count(job.name) >= 2
    assert plain(operator, "schedule_command_changelist", q=f"#{job.token}").count(f"#{job.token}") == 1
    assert "Nothing fits" in plain(operator, "schedule_command_changelist", q="x")
    assert "Nothing fits" in plain(operator, "schedule_command_changelist", q="9" * 30)
    assert "add blocks" in plain(operator, "schedule_command_changelist", kind="add_blocks")


def test_a_change_set_of_another_shape_is_shown_all_the_same(operator: Client) -> None:
    for change_set in ([], {}, {"added": 3}, {"jobs": ["x", 1, None]}, {"assigned": {"job": "x"}}, "text", 7):
        command = rows.make_command(change_set=change_set)
        assert f"Command {command.index}" in plain(operator, "schedule_command_change", command.pk)
    assert "added 3" in plain(operator, "schedule_command_changelist")


@pytest.mark.parametrize("state", JobState)
def test_every_state_and_outcome_has_words(operator: Client, state: JobState) -> None:
    job = rows.make_job("j", state.value)
    for number, outcome in enumerate(AttemptOutcome):
        rows.make_attempt(job, outcome.value, 900 + number)
    assert operator.get(reverse("admin:schedule_job_changelist")).status_code == 200
    assert operator.get(reverse("admin:schedule_job_change", args=[job.pk])).status_code == 200
