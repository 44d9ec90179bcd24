"""Explain names any block or job, by API and command alike."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from engine.formats.profile_block.container.object_names import dead_letter_key
from engine.schedule.limits import Scope, ScopeKind
from tests.block_factory import ulid
from tests.webadmin.service import REASON, Service
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.models import Block, DeadLetter, LetterState
from webadmin.schedule.errors import NotFound
from webadmin.schedule.explain import explain_name
from webadmin.schedule.models import Job
from webadmin.schedule.services.pause_schedule import pause


def sentence(name: str) -> str:
    [found] = explain_name(name)
    return found.sentence


def test_a_block_is_followed_through_its_life(service: Service) -> None:
    ids = service.add_segments(3)
    assert f"Segment {ids[0]} is queued: it waits in the queue of segments, shard 1, level 0 with 3 of 20" in sentence(
        ids[0]
    )
    assert "17 more blocks or in 36 s complete a job" in sentence(ids[0])
    service.add_segments(17)
    assert "no worker polls; it is planned after a node is started" in sentence(ids[0])
    worker = service.worker()
    [spec] = worker.take()
    assert f"is owned: it is one of 20 sources of job {spec.job}, which is leased" in sentence(ids[0])
    assert f"Job {spec.job} is leased: worker worker-1 runs it" in sentence(spec.job)
    worker.poll(worker.success(spec.job), capacity=0)
    assert f"is replaced: job {spec.job} merged it into" in sentence(ids[0])
    assert "its object is deleted in 15 min" in sentence(ids[0])
    assert f"Job {spec.job} is done" in sentence(spec.job)
    [result] = Block.objects.filter(level=1).values_list("ulid", flat=True)
    assert "is queued: it waits in the queue of acme, shard 1, level 1 with 1 of 10 blocks" in sentence(result)


def test_a_pause_is_named(service: Service) -> None:
    [block_id] = service.add_segments(1)
    pause(scope=Scope(ScopeKind.LEVEL, "0"), context=ActionContext(actor="op", why="maintenance"))
    assert "an operator paused level 0 (pause); it is planned after the pause ends" in sentence(block_id)


def test_the_explanation_of_a_failed_job_has_its_last_error(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.released(spec.job, REASON), capacity=0)
    assert "having failed once of 3 allowed (last: ChecksumMismatch)" in sentence(spec.job)


def test_a_block_is_found_by_key_and_by_the_beginning_of_its_id(service: Service) -> None:
    ids = service.add_segments(1)
    by_key = sentence(Block.objects.get().object_key)
    assert by_key == sentence(ids[0]) == sentence(f" {ids[0].lower()} ")
    assert len(explain_name(ids[0][:12])) == 1


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nothing",
        "01",
        "../x",
        "9" * 30,
        "é",
        "A" * 5000,
        "00000000000000000000000000",
        "a\0b",
        "a\udcff",
        "acme/repo/main",
        "1\n2",
    ],
)
def test_an_unknown_name_is_refused_in_words(service: Service, name: str) -> None:
    with pytest.raises(NotFound, match=r"nothing is called .*: give a block id .* TENANT/") as refused:
        explain_name(name)
    assert str(refused.value).isprintable()
    with pytest.raises(CommandError, match="nothing is called") as ended:
        call_command("explain", name)
    assert ended.value.returncode == 1


@pytest.mark.parametrize("name", ["nothing", "01M7YRCAKRFDX6BC1JEVMZT5BK", "a%00b", "../x", "%ff", "acme/repo/main"])
def test_an_unknown_name_is_404_with_a_code(service: Service, reader: dict[str, str], name: str) -> None:
    answer = Client().get(f"/api/v1/explain/{name}", headers=reader)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "give a block id" in answer.json()["message"]


@pytest.mark.parametrize("scope", ["read", "operate"])
def test_a_credential_of_one_tenant_is_rejected_with_that_reason(service: Service, scope: str) -> None:
    [block_id] = service.add_segments(1)
    issued = issue_worker_credential(name="acmes", scopes=[scope, "tenant:acme"], actor="test")
    answer = Client().get(f"/api/v1/explain/{block_id}", headers={"Authorization": f"Bearer {issued.wire_form}"})
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
    assert answer.json()["message"] == "the credential is for tenant acme only, and this is about all of them"


def test_a_dead_letter_is_explained_by_the_id_of_its_object_until_it_is_settled(service: Service) -> None:
    letter = DeadLetter.objects.create(
        key=dead_letter_key(3, "", ulid(5)),
        shard=3,
        ulid=ulid(5),
        size_bytes=9,
        written_at_ms=1,
        first_attempt_ms=1,
        last_attempt_ms=2,
        code="clock_ahead",
        reason="its time lies ahead",
    )
    told = (
        f"Object {ulid(5)} is a dead letter: it was written but could not be registered: its time lies ahead; "
        "a control task retries it within a minute, and an operator may discard it."
    )
    assert sentence(ulid(5)) == sentence(letter.key) == told
    letter.state = LetterState.DISCARDED
    letter.save()
    with pytest.raises(NotFound):
        explain_name(ulid(5))


def test_api_and_command_give_the_sentence(service: Service, reader: dict[str, str]) -> None:
    [block_id] = service.add_segments(1)
    answer = Client().get(f"/api/v1/explain/{block_id}", headers=reader)
    assert answer.status_code == 200
    assert [found["sentence"] for found in answer.json()["explanations"]] == [sentence(block_id)]
    by_key = Client().get(f"/api/v1/explain/{Block.objects.get().object_key}", headers=reader)
    assert by_key.json() == answer.json()
    missing = Client().get("/api/v1/explain/nothing", headers=reader)
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    out = StringIO()
    call_command("explain", block_id, stdout=out)
    assert out.getvalue() == f"{sentence(block_id)}\n"
    as_json = StringIO()
    call_command("explain", block_id, "--json", stdout=as_json)
    assert json.loads(as_json.getvalue()) == answer.json()
    with pytest.raises(CommandError, match="nothing is called"):
        call_command("explain", "nothing")


def test_no_job_and_no_block_is_in_limbo(service: Service) -> None:
    service.add_segments(45, datasets=(("acme", "web"), ("umbrella", "api")))
    worker = service.worker()
    first, second = worker.take(2)
    worker.poll(worker.success(first.job), worker.released(second.job, REASON), capacity=0)
    names = [*Block.objects.values_list("ulid", flat=True), *Job.objects.values_list("name", flat=True)]
    states = {name: explain_name(name)[0].state for name in names}
    assert set(states.values()) == {"replaced", "queued", "owned", "done", "waiting"}
