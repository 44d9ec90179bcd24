"""One bad block among many: the schedule splits the job until it is alone, keeps it apart, and compacts the rest."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from engine.protocol.messages import FailureReason
from engine.schedule.model import JobState, ParkedKind
from engine.storage import open_store
from engine.storage.model import ObjectStore
from tests.webadmin.service import REASON, FakeWorker, Service
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.services.isolate_jobs import isolate
from webadmin.lanes.profiles.services.quarantine_blocks import release
from webadmin.lanes.profiles.services.retain import apply_retention
from webadmin.lanes.profiles.suspects import sources_of
from webadmin.schedule.breakages import RECENT_MS, merging_is_broken
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Attempt, Job, Limits
from webadmin.schedule.operation_models import JobSplit
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.services.return_job_blocks import return_job_blocks

ROUNDS_MAX = 60


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}")


def put_all(store: ObjectStore, *, without: Collection[str] = ()) -> None:
    for key, ulid in Block.objects.values_list("object_key", "ulid"):
        if ulid not in without:
            store.put(key, b"x")


def reason(error_class: str = "Truncated", key: str = "") -> FailureReason:
    return FailureReason(error_class=error_class, message="ends early", object=key, section="profiles", offset=12)


def work(
    service: Service, worker: FakeWorker, bad: Collection[str], *, names: bool = False, level_max: int = 0
) -> None:
    """Run what there is to run; jobs with a bad source fail, and say which it was if ``names``."""
    while taken := worker.take(4):
        for spec in taken:
            culprits = [source for source in spec.sources if source.id in bad]
            if not culprits:
                worker.poll(worker.success(spec.job), capacity=0)
            else:
                told = reason(key=culprits[0].key if names else "")
                worker.poll(worker.released(spec.job, told), capacity=0)


def settle(
    service: Service, store: ObjectStore, worker: FakeWorker, bad: Collection[str], *, names: bool = False
) -> None:
    """Let workers and isolation take turns until nothing changes any more."""
    for _ in range(ROUNDS_MAX):
        work(service, worker, bad, names=names)
        done = isolate(store=store)
        if not done.split and not done.quarantined:
            return
    raise AssertionError(f"isolation goes on after {ROUNDS_MAX} rounds")


@pytest.mark.parametrize("names", [False, True])
def test_17_8_one_bad_segment_is_quarantined_and_the_rest_is_compacted(
    service: Service, store: ObjectStore, names: bool
) -> None:
    ids = service.add_segments(20)
    settle(service, store, service.worker(), {ids[7]}, names=names)
    row = Quarantine.objects.get()
    assert (row.block.ulid, row.cause, row.error_class, row.build) == (ids[7], "damaged", "Truncated", "test")
    assert (row.section, row.offset, row.attempts, row.released_at_ms) == ("profiles", 12, 2, None)
    assert Block.objects.filter(level=0, state="replaced").count() == 19
    job = row.job
    assert (job.state, job.parked_kind, job.source_count) == (JobState.PARKED, ParkedKind.QUARANTINED, 1)
    assert Attempt.objects.count() <= 4 + 3 * 6 + 1
    if names:
        assert JobSplit.objects.count() == 2


def test_every_bad_segment_of_a_job_is_found(service: Service, store: ObjectStore) -> None:
    ids = service.add_segments(20)
    bad = {ids[0], ids[1], ids[19]}
    settle(service, store, service.worker(), bad)
    assert {row.block.ulid for row in Quarantine.objects.all()} == bad
    assert Block.objects.filter(level=0, state="replaced").count() == 17


def test_a_part_gets_two_runs_and_knows_where_it_came_from(service: Service, store: ObjectStore, evicted) -> None:
    root = evicted()
    isolate(store=store)
    root.refresh_from_db()
    assert root.state == JobState.DISSOLVED
    worker = service.worker()
    for _ in range(4):
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, reason()), capacity=0)
    assert worker.take() == []
    assert [split.child.failures for split in root.split_into.all()] == [1, 1]
    isolate(store=store)
    assert set(JobSplit.objects.values_list("root_id", flat=True)) == {root.id}
    assert JobSplit.objects.count() == 6


def test_a_build_that_merges_nothing_quarantines_nothing(service: Service, store: ObjectStore) -> None:
    ids = service.add_segments(20)
    settle(service, store, service.worker(), set(ids))
    assert not Quarantine.objects.exists()
    assert isolate(store=store).stop.startswith("12 of 12 recent sources cannot be merged")
    assert service.states() == {"owned": 20}


def test_another_block_merged_by_the_same_build_is_the_control(service: Service, store: ObjectStore, evicted) -> None:
    bad = set(evicted(count=3).spec["sources"])
    old, new = service.worker(), service.worker()
    settle(service, store, old, bad)
    new.build = "newer"
    service.add_segments(20, shard=2)
    work(service, new, ())
    assert not isolate(store=store).quarantined, "the newer build says nothing about the older"
    service.add_segments(20, shard=3)
    work(service, old, ())
    assert {ulid for ulid, _ in isolate(store=store).quarantined} == bad


def test_a_broken_build_is_reported_and_nothing_is_split(service: Service, store: ObjectStore, evicted) -> None:
    for shard in (1, 2, 3):
        evicted(shard=shard)
    [broken] = merging_is_broken()
    assert (broken.build, broken.error_class, broken.failed_jobs, broken.jobs) == ("test", "ChecksumMismatch", 3, 3)
    before = service.dump()
    outcome = isolate(store=store)
    assert (outcome.split, outcome.quarantined) == ([], [])
    assert {why for _, why in outcome.waiting} == {str(broken)}
    assert service.dump() == before


def test_failures_of_long_ago_break_no_build(service: Service, store: ObjectStore, evicted) -> None:
    for shard in (1, 2, 3):
        evicted(shard=shard)
    assert merging_is_broken(now_ms=read_time().now_ms + RECENT_MS + 1) == ()


def test_s_17_7_a_missing_object_is_set_aside_and_the_rest_is_merged(service: Service, store: ObjectStore) -> None:
    ids = service.add_segments(20)
    put_all(store, without={ids[3]})
    worker = service.worker()
    key = Block.objects.get(ulid=ids[3]).object_key
    for _ in range(4):
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, reason("ObjectNotFound", key)), capacity=0)
    assert isolate(store=store).quarantined == [(ids[3], "ObjectNotFound")]
    row = Quarantine.objects.get()
    assert (row.cause, row.object, row.message) == ("missing", key, "the store has no such object")
    [spec] = worker.take()
    assert [source.id for source in spec.sources] == [*ids[:3], *ids[4:]]
    worker.poll(worker.success(spec.job), capacity=0)
    assert Block.objects.filter(level=0, state="replaced").count() == 19


def test_a_lone_missing_object_needs_no_split(service: Service, store: ObjectStore) -> None:
    [ulid] = service.add_segments(1)
    worker = service.worker()
    while not (taken := worker.take()):
        service.clock.advance(10)
    for _ in range(4):
        [spec] = taken
        worker.poll(worker.released(spec.job, reason("ObjectNotFound")), capacity=0)
        taken = worker.take()
    assert isolate(store=store).quarantined == [(ulid, "ObjectNotFound")]
    assert not JobSplit.objects.exists()


def test_an_object_that_is_there_is_not_called_missing(service: Service, store: ObjectStore, evicted) -> None:
    evicted(reason=reason("ObjectNotFound"))
    put_all(store)
    outcome = isolate(store=store)
    assert (len(outcome.split), outcome.quarantined) == (1, [])


def test_isolating_twice_changes_nothing_the_second_time(service: Service, store: ObjectStore, evicted) -> None:
    evicted()
    isolate(store=store)
    before = service.dump()
    isolate(store=store)
    assert service.dump() == before


def test_a_dry_run_lists_jobs_to_split(service: Service, store: ObjectStore, evicted, dry: ActionContext) -> None:
    job = evicted()
    before = service.dump()
    assert isolate(store=store, context=dry).split == [job.name]
    assert service.dump() == before


def test_what_an_operator_set_aside_is_left_alone(
    service: Service, store: ObjectStore, evicted, context: ActionContext
) -> None:
    job = evicted()
    Job.objects.filter(id=job.id).update(parked_kind=ParkedKind.DEFERRED)
    assert isolate(store=store).split == []


@pytest.mark.row("invariant-11")
def test_a_full_queue_prevents_splits(service: Service, store: ObjectStore, evicted) -> None:
    evicted()
    Limits.objects.update(queue_max=1)
    assert isolate(store=store).waiting[0][1] == "the queue is full"
    Limits.objects.update(queue_max=2)
    assert len(isolate(store=store).split) == 1


@pytest.fixture
def quarantined(service: Service, store: ObjectStore) -> str:
    """A quarantined block's id."""
    ids = service.add_segments(20)
    settle(service, store, service.worker("old"), {ids[7]})
    return ids[7]


def test_a_released_block_is_tried_alone_and_merged(service: Service, quarantined: str, context: ActionContext) -> None:
    outcome = release([quarantined], context=context)
    assert outcome.changed == (quarantined,)
    worker = service.worker()
    [spec] = worker.take()
    assert [source.id for source in spec.sources] == [quarantined]
    worker.poll(worker.success(spec.job), capacity=0)
    assert Block.objects.get(ulid=quarantined).state == "replaced"
    row = Quarantine.objects.get()
    assert (row.released_by, row.release_why) == (context.actor, context.why)
    assert AuditEntry.objects.filter(action="release", target=quarantined).count() == 1


def test_a_released_block_that_is_still_bad_needs_two_new_failures(
    service: Service, store: ObjectStore, quarantined: str, context: ActionContext
) -> None:
    release([quarantined], context=context)
    assert isolate(store=store).quarantined == []
    service.add_segments(20, shard=2)
    settle(service, store, service.worker(), {quarantined})
    assert Quarantine.objects.filter(released_at_ms=None).count() == 1
    assert Quarantine.objects.count() == 2


def test_a_block_released_for_a_newer_build_stays_away_from_the_old(
    service: Service, quarantined: str, context: ActionContext
) -> None:
    release(everything=True, context=context, newer_build_only=True)
    old, new = service.worker(), service.worker()
    new.build = "newer"
    assert (old.take(), len(new.take())) == ([], 1)


def test_releasing_twice_or_the_unknown_changes_nothing(
    service: Service, quarantined: str, context: ActionContext, dry: ActionContext
) -> None:
    preview = release([quarantined, "nothing"], context=dry)
    first = release([quarantined, "nothing"], context=context)
    assert (first.changed, first.left) == (preview.changed, preview.left)
    assert first.left == (("nothing", "it is not in quarantine"),)
    before = service.dump()
    assert release([quarantined], context=context).changed == ()
    assert service.dump() == before


def test_only_a_release_lets_a_block_out(service: Service, quarantined: str, context: ActionContext) -> None:
    for act in (requeue, return_job_blocks):
        outcome = act(JobFilter(everything=True), context=context)
        assert [why for _, why in outcome.left] == ["it is quarantined: release it"]
    assert Quarantine.objects.get().released_at_ms is None


def test_a_bad_block_of_a_higher_level_is_found_too(service: Service, store: ObjectStore) -> None:
    worker = service.worker()
    for _ in range(10):
        service.add_segments(20)
        [spec] = worker.take()
        worker.poll(worker.success(spec.job), capacity=0)
    bad = Block.objects.filter(level=1).order_by("ulid")[4].ulid
    settle(service, store, worker, {bad})
    row = Quarantine.objects.get()
    assert (row.block.ulid, row.job.level, row.job.tenant) == (bad, 1, "acme")
    assert Block.objects.filter(level=1, state="replaced").count() == 9


def test_what_left_a_parked_job_meanwhile_stops_no_other(service: Service, store: ObjectStore, evicted) -> None:
    emptied, other = evicted(shard=1), evicted(shard=2)
    Block.objects.filter(owner_job=emptied).update(state="final", owner_job=None)
    outcome = isolate(store=store)
    assert outcome.split == [other.name]
    assert outcome.waiting == [(emptied.name, "it has no blocks left: return its blocks to their queues to end it")]
    return_job_blocks(JobFilter(names=(emptied.name,)), context=ActionContext(actor="operator"))
    emptied.refresh_from_db()
    assert emptied.state == JobState.DISSOLVED


def test_a_job_that_changes_while_it_is_judged_is_left_for_the_next_round(
    service: Service, store: ObjectStore, evicted, monkeypatch: pytest.MonkeyPatch
) -> None:
    evicted()
    monkeypatch.setattr("webadmin.lanes.profiles.services.isolate_jobs.sources_of", lambda job: sources_of(job)[1:])
    before = service.dump()
    [(_, why)] = isolate(store=store).waiting
    assert "have changed" in why
    assert service.dump() == before


def test_a_quarantined_block_that_retention_takes_is_held_no_more(service: Service, quarantined: str) -> None:
    service.clock.advance(40 * 24 * 3600)
    apply_retention(context=ActionContext(actor="test"))
    row = Quarantine.objects.select_related("block").get()
    assert (row.block.ulid, row.block.state, row.released_by) == (quarantined, "dropped", "control:retention")


def test_a_lone_block_that_failed_on_different_builds_is_judged_on_one(
    service: Service, store: ObjectStore, evicted
) -> None:
    job = evicted(count=1)
    for number, attempt in enumerate(job.attempts.order_by("token")):
        Attempt.objects.filter(id=attempt.id).update(build=f"0.{number}")
    worker = service.worker()
    for _ in range(2):
        assert isolate(store=store).tried_again == [job.name]
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, REASON), capacity=0)
        job.refresh_from_db()
        assert job.state == "parked", "one run at a time"
    outcome = isolate(store=store)
    assert (outcome.tried_again, outcome.quarantined) == ([], []), "two on one build, and no control"
    assert "has merged no other" in dict(outcome.waiting)[job.name]
    service.add_segments(20, shard=2)
    [control] = worker.take()
    worker.poll(worker.success(control.job), capacity=0)
    assert len(isolate(store=store).quarantined) == 1
