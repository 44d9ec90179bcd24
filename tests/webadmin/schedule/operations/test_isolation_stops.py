"""Too many bad blocks at once: isolation stops, reports it, and continues only by one decision of an operator."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import pytest
from django.db import OperationalError
from django.test import Client

from engine.lanes.profiles.jobs import KIND
from engine.schedule.isolation import BAD_SOURCES_MIN, RecentSources
from engine.schedule.model import ParkedKind
from engine.storage import open_store
from engine.storage.model import ObjectStore
from tests.webadmin.probes import probe
from tests.webadmin.schedule.operations.test_isolation import put_all, reason, settle, work
from tests.webadmin.service import FakeWorker, Service
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.actions.action import ActionContext
from webadmin.console.pages import front_page
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.services.isolate_jobs import isolate
from webadmin.progress.services import count_log
from webadmin.schedule import services
from webadmin.schedule.isolation_stops import open_stop
from webadmin.schedule.models import Limits
from webadmin.schedule.operation_models import IsolationStop
from webadmin.schedule.register import JobFilter, parked_jobs
from webadmin.schedule.services.operation import QUEUE_IS_FULL, OperationOutcome
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.services.stop_isolation import decide_isolation, stop_isolation

RETRY, QUARANTINE = IsolationStop.Decision.RETRY, IsolationStop.Decision.QUARANTINE


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}")


def quarantined() -> set[str]:
    return set(Quarantine.objects.filter(released_at_ms=None).values_list("block__ulid", flat=True))


def add_damaged(service: Service, *, damaged: Iterable[int]) -> set[str]:
    """Add 40 segments, which make two jobs; return the ids of those at these places that cannot be merged."""
    ids = [ulid for shard in (1, 2) for ulid in service.add_segments(20, shard=shard)]
    return {ids[place] for place in damaged}


def pass_hours(service: Service) -> None:
    """Let two hours of command time pass: without commands it advances by a lease at most."""
    Limits.objects.update(lease_seconds=2 * 3600)
    service.clock.advance(2 * 3600)


@pytest.fixture
def bad(service: Service, store: ObjectStore) -> set[str]:
    """32 damaged segments of 40, in two planned jobs: too few jobs to call the build broken. Isolation has stopped."""
    bad = add_damaged(service, damaged=[place for place in range(40) if place % 5])
    settle(service, store, service.worker(), bad)
    return bad


def test_a_store_that_damages_most_blocks_is_not_taken_apart_block_by_block(
    service: Service, store: ObjectStore, bad: Collection[str]
) -> None:
    assert len(quarantined()) < BAD_SOURCES_MIN
    stop = open_stop(KIND, "")
    assert stop is not None
    assert "recent sources cannot be merged" in stop.reason
    assert "Truncated" in stop.reason
    before = service.dump()
    outcome = isolate(store=store)
    assert (outcome.split, outcome.quarantined, outcome.tried_again) == ([], [], [])
    assert {why for _, why in outcome.waiting} == {f"{stop.reason}: an operator decides"}
    assert service.dump() == before


def test_the_stop_outlasts_the_hour_in_which_blocks_are_counted(
    service: Service, store: ObjectStore, bad: Collection[str]
) -> None:
    held = quarantined()
    pass_hours(service)
    for shard in range(10, 40):
        service.add_segments(20, shard=shard)
    settle(service, store, service.worker(), bad)
    assert (quarantined(), open_stop(KIND, "") is not None) == (held, True)


def test_a_stopped_quarantine_is_shown_everywhere_and_ends_by_one_decision(
    service: Service, store: ObjectStore, bad: Collection[str], context: ActionContext, rf
) -> None:
    count_log()
    answer = probe("/progressz")
    assert answer.status_code == 503
    assert "quarantine_stopped" in [blocker["code"] for blocker in answer.json()["blockers"]]
    assert "\nlithify_quarantine_stopped 1" in probe("/metrics").content.decode()
    notices = [notice.text for notice in front_page(rf.get("/"), {})["notices"]]
    assert any(text.startswith("Quarantine is stopped until an operator decides: ") for text in notices)
    decide_isolation(KIND, "", QUARANTINE, context=context)
    settle(service, store, service.worker(), bad)
    assert (quarantined(), open_stop(KIND, "")) == (set(bad), None)
    count_log()
    assert probe("/progressz").status_code == 200


def test_blocks_that_arrive_after_the_decision_are_counted_again(
    service: Service, store: ObjectStore, bad: Collection[str], context: ActionContext
) -> None:
    decide_isolation(KIND, "", QUARANTINE, context=context)
    settle(service, store, service.worker(), bad)
    pass_hours(service)  # in the same hour so many jobs fail that the build is called broken
    later = add_damaged(service, damaged=range(0, 40, 2))
    settle(service, store, service.worker(), later)
    assert open_stop(KIND, "") is not None
    assert len(quarantined() & later) < BAD_SOURCES_MIN


def test_one_decision_tries_every_block_again_on_a_repaired_store(
    service: Service, store: ObjectStore, bad: Collection[str], context: ActionContext, dry: ActionContext
) -> None:
    waiting = {job.name for job in parked_jobs()}
    preview = decide_isolation(KIND, "", RETRY, context=dry)
    assert open_stop(KIND, "") is not None
    outcome = decide_isolation(KIND, "", RETRY, context=context)
    assert (outcome.changed, outcome.left) == (preview.changed, ())
    assert len(outcome.changed) == len(waiting)
    settle(service, store, service.worker(), ())
    assert (quarantined(), parked_jobs().count(), open_stop(KIND, "")) == (set(), 0, None)
    assert not Block.objects.filter(level=0).exclude(state="replaced").exists()


def test_a_store_that_is_still_bad_stops_isolation_again(
    service: Service, store: ObjectStore, bad: Collection[str], context: ActionContext
) -> None:
    decide_isolation(KIND, "", RETRY, context=context)
    pass_hours(service)
    settle(service, store, service.worker(), bad)
    assert IsolationStop.objects.count() == 2
    assert open_stop(KIND, "") is not None


def lose(service: Service, worker: FakeWorker, lost: Collection[str]) -> None:
    """Let every job with a lost segment fail as a node does that finds no object."""
    while taken := worker.take(4):
        for spec in taken:
            missing = [source.key for source in spec.sources if source.id in lost]
            done = worker.released(spec.job, reason("ObjectNotFound", missing[0])) if missing else None
            worker.poll(done or worker.success(spec.job), capacity=0)


@pytest.mark.parametrize(("lost_count", "is_stopped"), [(3, False), (12, True)])
def test_many_missing_objects_of_one_job_are_not_set_aside_in_one_go(
    service: Service, store: ObjectStore, lost_count: int, is_stopped: bool
) -> None:
    ids = service.add_segments(20)
    lost = ids[:lost_count]
    put_all(store, without=lost)
    lose(service, service.worker(), lost)
    outcome = isolate(store=store)
    assert bool(outcome.stop) is is_stopped
    assert quarantined() == (set() if is_stopped else set(lost))


def test_missing_objects_that_an_operator_gave_up_stop_nothing_again(
    service: Service, store: ObjectStore, context: ActionContext
) -> None:
    ids = service.add_segments(20)
    put_all(store, without=ids[:12])
    lose(service, service.worker(), ids[:12])
    assert isolate(store=store).stop
    decide_isolation(KIND, "", QUARANTINE, context=context)
    assert isolate(store=store).stop == ""
    assert quarantined() == set(ids[:12])


def test_a_decision_releases_in_as_many_commands_as_it_takes(
    service: Service, store: ObjectStore, context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(service, store, service.worker(), add_damaged(service, damaged=[3, 13, 33]))
    assert len(quarantined()) == 3
    stop_isolation(KIND, "", RecentSources(bad={"Truncated": 3}, merged_count=1), context)
    monkeypatch.setattr("webadmin.lanes.profiles.single_blocks.JOBS_PER_COMMAND", 1)
    outcome = decide_isolation(KIND, "", RETRY, context=context)
    assert (quarantined(), len(outcome.changed), outcome.left) == (set(), 3, ())
    assert len(outcome.command_indexes) == 3 + 1, "one for each block, and the decision"


def test_a_retry_for_which_the_queue_has_no_room_keeps_the_stop(
    service: Service, store: ObjectStore, bad: Collection[str], context: ActionContext
) -> None:
    waiting = parked_jobs().count()
    Limits.objects.update(queue_max=1)
    outcome = decide_isolation(KIND, "", RETRY, context=context)
    assert len(outcome.changed) + len(outcome.left) == waiting
    assert outcome.left
    assert {reason for _, reason in outcome.left} == {QUEUE_IS_FULL}
    assert "the stop stays" in outcome.notes[0]
    assert open_stop(KIND, "") is not None
    Limits.objects.update(queue_max=1000)
    again = decide_isolation(KIND, "", RETRY, context=context)
    assert (len(again.changed), again.left) == (len(outcome.left), ())
    assert open_stop(KIND, "") is None


def test_a_retry_that_was_broken_off_is_given_again(
    service: Service, store: ObjectStore, bad: Collection[str], context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches of one job each: the second one fails."""
    waiting = parked_jobs(JobFilter(kind=ParkedKind.EVICTED)).count()
    assert waiting > 1
    given: list[JobFilter] = []

    def requeue_once(wanted: JobFilter, *, context: ActionContext) -> OperationOutcome:
        if given:
            raise OperationalError("gone")
        given.append(wanted)
        return requeue(wanted, context=context)

    monkeypatch.setattr(services.stop_isolation, "NAMES_MAX", 1)
    with monkeypatch.context() as patch:
        patch.setattr(services.stop_isolation, "requeue", requeue_once)
        with pytest.raises(OperationalError):
            decide_isolation(KIND, "", RETRY, context=context)
    assert len(given[0].names) == 1
    assert parked_jobs(JobFilter(kind=ParkedKind.EVICTED)).count() == waiting - 1
    assert open_stop(KIND, "") is not None
    outcome = decide_isolation(KIND, "", RETRY, context=context)
    assert (outcome.left, open_stop(KIND, "")) == ((), None)
    assert parked_jobs(JobFilter(kind=ParkedKind.EVICTED)).count() == 0


def test_a_dry_run_stops_nothing(service: Service, store: ObjectStore, dry: ActionContext) -> None:
    ids = service.add_segments(20)
    put_all(store, without=ids)
    lose(service, service.worker(), ids)
    assert isolate(store=store, context=dry).stop
    assert open_stop(KIND, "") is None


def test_few_bad_blocks_among_many_good_ones_stop_nothing(service: Service, store: ObjectStore) -> None:
    bad = add_damaged(service, damaged=range(0, 40, 8))
    settle(service, store, service.worker(), bad)
    assert (quarantined(), open_stop(KIND, "")) == (bad, None)


def test_the_decision_is_given_over_http(service: Service, store: ObjectStore, bad: Collection[str]) -> None:
    token = issue_worker_credential(name="operator", actor="test", scopes=["operate"]).wire_form
    ask = {"HTTP_AUTHORIZATION": f"Bearer {token}", "content_type": "application/json"}
    client, address = Client(), "/api/v1/operations/isolation"
    assert client.get(address, **ask).json()["stops"][0]["bad_sources"] >= BAD_SOURCES_MIN
    refused = client.post(address, {"lane": "profiles", "decision": "wait", "why": "x"}, **ask)
    assert refused.status_code == 400
    decision = {"lane": "profiles", "decision": "quarantine", "why": "the disk is lost"}
    done = client.post(address, decision, **ask).json()
    assert (done["decision"], len(done["commands"])) == ("quarantine", 1)
    assert client.get(address, **ask).json() == {"stops": []}
    again = client.post(
        address, {"lane": "profiles", "decision": "quarantine", "why": "the disk is lost"}, **ask
    ).json()
    assert (again["commands"], again["notes"]) == ([], ["nothing is stopped in profiles: nothing to decide"])
    work(service, service.worker(), bad)
    assert IsolationStop.objects.get().ended_by == "credential:operator"
