"""A worker's poll from its request to the changed rows: assigning, renewing, completing, returning, refusing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.protocol.messages import JobUpdate, Progress, UpdateStatus
from engine.schedule.model import JobState
from tests.block_factory import block_meta, merged, result_block, ulid
from tests.webadmin.service import REASON, Service, check_invariants, relabelled
from webadmin.base.access.credential_changes import revoke_credential
from webadmin.base.access.errors import NameTaken
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block, BlockLineage, Tombstone
from webadmin.schedule.models import Attempt, Command, Job, Limits, LogHead

LEASE_SECONDS = 15


@pytest.fixture(autouse=True)
def _invariants_hold_at_the_end(service: Service):
    yield
    check_invariants()


def test_a_full_queue_is_planned_and_assigned_in_one_poll(service: Service) -> None:
    ids = service.add_segments(20)
    [spec] = service.worker().take()
    job = Job.objects.get()
    assert [source.id for source in spec.sources] == ids
    assert (spec.job, spec.fence, spec.level, spec.tenant) == (job.name, job.token, 0, "")
    assert job.token == Command.objects.get(kind="update_plan").index
    assert job.lease_expires_ms == job.assigned_at_ms + LEASE_SECONDS * 1000
    assert service.states() == {"owned": 20}


def test_too_few_young_segments_are_left_to_wait(service: Service) -> None:
    service.add_segments(19)
    assert service.worker().take() == []
    assert service.states() == {"queued": 19}


def test_a_lone_old_segment_is_merged_without_another_arrival(service: Service) -> None:
    service.add_segments(1)
    worker = service.worker()
    for seconds in (LEASE_SECONDS, LEASE_SECONDS, 36 - 2 * LEASE_SECONDS):
        service.clock.advance(seconds)
        assert worker.take() == []
    service.clock.advance(0.001)
    assert len(worker.take()) == 1


def test_old_segments_are_found_though_the_service_slept(service: Service) -> None:
    """Command time stands still while nothing is written; polls must push it on until the age is reached."""
    service.add_segments(20)
    worker = service.worker()
    worker.take()
    worker.poll(worker.success(*worker.held), capacity=0)
    service.clock.advance(3600)
    service.add_segments(1)
    polls = 0
    while not worker.take():
        service.clock.advance(5)
        polls += 1
        assert polls < 12
    assert polls >= 7


def test_capacity_bounds_what_is_planned(service: Service) -> None:
    for _ in range(4):
        service.add_segments(20)
    worker = service.worker()
    assert len(worker.take(3)) == 3
    assert Job.objects.count() == 3
    assert worker.poll(capacity=0).assignments == ()
    assert len(worker.take(3)) == 1


def test_no_capacity_changes_nothing(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    before = service.dump()
    worker.poll(capacity=0)
    assert service.dump() == before


def test_a_renewal_keeps_the_token_and_writes_no_log_entry(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    head = LogHead.objects.values().get()
    service.clock.advance(10)
    answer = worker.poll(worker.running(spec.job, Progress(done=3, total=9, phase="rows")), capacity=0)
    job = Job.objects.get()
    assert [(lease.job, lease.token) for lease in answer.leases] == [(spec.job, worker.held[spec.job].token)]
    assert (job.token, job.progress) == (spec.fence, {"done": 3, "total": 9, "phase": "rows"})
    assert job.lease_expires_ms == head["command_time_ms"] + (10 + LEASE_SECONDS) * 1000
    assert LogHead.objects.values().get() == head


def test_a_renewal_never_shortens_a_lease(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    expires = Job.objects.get().lease_expires_ms
    service.clock.advance(-3600)
    worker.poll(worker.running(spec.job), capacity=0)
    assert Job.objects.get().lease_expires_ms == expires


@pytest.mark.parametrize("status", list(UpdateStatus))
@pytest.mark.parametrize("forged", ["9.00000000.aaaaaaaaaaaaaaaaaaaaaa", "1", "x" * 200])
def test_a_forged_token_gets_no_lease_and_changes_nothing(service: Service, status: UpdateStatus, forged: str) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    before = service.dump()
    result = merged(spec).to_json()
    answer = worker.poll(JobUpdate(job=spec.job, token=forged, status=status, result=result), capacity=0)
    assert answer.leases == ()
    assert service.dump() == before


def test_another_credential_cannot_use_a_token(service: Service) -> None:
    service.add_segments(20)
    worker, thief = service.worker(), service.worker()
    [spec] = worker.take()
    thief.held = worker.held
    before = service.dump()
    thief.poll(thief.success(spec.job), capacity=0)
    assert service.dump() == before


def test_a_stale_token_gets_no_lease_and_its_result_is_ignored(service: Service) -> None:
    """A lost its lease, B has the job: A's late success is refused, B's counts, there is one replacement."""
    service.add_segments(20)
    late, current = service.worker("late"), service.worker("current")
    [first] = late.take()
    service.clock.advance(LEASE_SECONDS + 0.001)
    current.take()
    service.clock.advance(1)
    [second] = current.take() or [ProfileMergeSpec.from_json(current.held[first.job].spec)]
    assert second.fence > first.fence
    late_blocks = {block.id for block in merged(first).blocks}
    assert late.poll(late.running(first.job), capacity=0).leases == ()
    assert late.poll(late.success(first.job), capacity=0).leases == ()
    assert service.states() == {"owned": 20}
    current.poll(current.success(first.job), capacity=0)
    assert service.states() == {"replaced": 20, "queued": 1}
    assert not Block.objects.filter(ulid__in=late_blocks).exists()


@pytest.mark.parametrize("status", list(UpdateStatus))
def test_a_workers_own_older_token_is_stale_too(service: Service, status: UpdateStatus) -> None:
    """A node that paused, lost its job and got the same job again may still have the old run's report to send."""
    service.add_segments(20)
    worker = service.worker()
    [first] = worker.take()
    old = relabelled(worker.success(first.job), status=status)
    service.clock.advance(LEASE_SECONDS)
    worker.take()
    service.clock.advance(1)
    worker.take()
    assert worker.held[first.job].token != old.token
    before = service.dump()
    assert worker.poll(old, capacity=0).leases == ()
    assert service.dump() == before


def test_completion_replaces_sources_by_one_block_per_tenant(service: Service) -> None:
    ids = service.add_segments(20, datasets=[("acme", "web"), ("beta", "api"), ("beta", "db")])
    worker = service.worker()
    [spec] = worker.take()
    answer = worker.poll(worker.success(spec.job), capacity=0)
    job = Job.objects.get()
    assert answer.leases == ()
    assert (job.state, job.lease_expires_ms, job.result["rows_read"]) == ("done", None, 7)
    results = Block.objects.filter(level=1).select_related("tenant")
    assert {block.tenant.name: (block.state, block.crc32c) for block in results} == {
        "acme": ("queued", 0xABCD),
        "beta": ("queued", 0xABCD),
    }
    queues = LevelQueue.objects.filter(level=1).values_list("tenant", "block_count")
    assert sorted(queues) == [("acme", 1), ("beta", 1)]
    assert Tombstone.objects.filter(job=job).count() == len(ids)
    assert BlockLineage.objects.filter(job=job).count() == 2 * len(ids)
    assert set(results.values_list("datasets__name__name", flat=True)) == {"web", "api", "db", ""}


def test_lineage_names_only_sources_with_the_tenants_data(service: Service) -> None:
    service.add_segments(10, datasets=[("acme", "web")])
    service.add_segments(10, datasets=[("beta", "web")])
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    counts = {block.tenant.name: block.made_from.count() for block in Block.objects.filter(level=1)}
    assert counts == {"acme": 10, "beta": 10}


def test_a_success_reported_again_after_a_lost_answer_changes_nothing(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    before = service.dump()
    answer = worker.poll(worker.success(spec.job), capacity=0)
    assert answer.leases == ()
    assert service.dump() == before


def test_a_success_after_the_lease_counts_if_the_job_was_not_reassigned(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    service.clock.advance(3600)
    worker.poll(worker.success(spec.job), capacity=0)
    assert Job.objects.get().state == JobState.DONE


def test_level_three_is_final(service: Service) -> None:
    metas = [block_meta(ulid(service.clock.now_ms, n), level=2, tenant="acme") for n in range(10)]
    service.add(*metas)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    assert Block.objects.get(level=3).state == "final"
    service.clock.advance(14)
    assert worker.take() == []


def test_an_expired_job_goes_to_the_next_poll_as_a_failure(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [first] = worker.take()
    service.clock.advance(LEASE_SECONDS)
    assert service.worker().take() == []
    assert Job.objects.get().failures == 0
    # The poll above let time go on by a lease; the end of the lease itself still belongs to its holder.
    service.clock.advance(0.001)
    [second] = worker.take()
    assert (second.job, Job.objects.get().failures) == (first.job, 1)
    assert second.fence > first.fence
    assert sorted(Attempt.objects.values_list("outcome", flat=True)) == ["expired", "running"]


def test_a_job_without_a_run_left_is_parked_with_a_reason(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    for run in range(2, 5):
        worker.poll(worker.released(spec.job, REASON), capacity=0)
        assert Job.objects.get().state == JobState.WAITING
        assert len(worker.take()) == 1, f"run {run}"
    worker.poll(worker.released(spec.job, REASON), capacity=0)
    job = Job.objects.get()
    assert (job.state, job.failures) == ("parked", 3)
    assert "ChecksumMismatch" in job.parked_reason
    assert worker.take() == []
    assert service.states() == {"owned": 20}
    assert Attempt.objects.filter(outcome="failed", reason__object="a/block.bin").count() == 4


def test_a_job_whose_last_lease_ran_out_is_parked(service: Service) -> None:
    service.add_segments(20)
    Limits.objects.update(failures_max=1)
    worker = service.worker()
    worker.take()
    for _ in range(8):
        service.clock.advance(LEASE_SECONDS - 1)
        worker.take()
    job = Job.objects.get()
    assert (job.state, job.failures) == ("parked", 1)
    assert "lease ran out" in job.parked_reason
    assert Attempt.objects.filter(outcome="expired").count() == 2


def test_a_release_without_a_reason_is_no_failure(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.released(spec.job), capacity=0)
    job = Job.objects.get()
    assert (job.state, job.failures, job.lease_expires_ms) == ("waiting", 0, None)
    assert Attempt.objects.get().outcome == "released"
    [again] = service.worker().take()
    assert again.fence > spec.fence


def test_a_worker_does_not_get_back_in_the_same_poll_what_it_gave_back(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    assert worker.poll(worker.released(spec.job, REASON), capacity=2).assignments == ()
    assert len(worker.take()) == 1


def _without_blocks(result):
    return replace(result, blocks=())


def _other_sources(result):
    return replace(result, sources=result.sources[:-1])


def _twice_the_same(result):
    return replace(result, blocks=result.blocks * 2)


def _changed(**changes):
    def change(result):
        block = result.blocks[0]
        meta = block_meta(
            changes.get("id", block.id),
            shard=changes.get("shard", 1),
            level=changes.get("level", 1),
            tenant=changes.get("tenant", "acme"),
            datasets=changes.get("datasets", [("acme", "web")]),
        )
        return replace(result, blocks=(replace(result_block(meta), **changes.get("block", {})),))

    return change


BAD_RESULTS = {
    "no blocks": _without_blocks,
    "not the sources": _other_sources,
    "an id twice": _twice_the_same,
    "another shard": _changed(shard=2),
    "the level of the sources": _changed(level=0, tenant=""),
    "two levels up": _changed(level=2),
    "another tenant": _changed(tenant="evil", datasets=[("evil", "web")]),
    "a dataset of another tenant": _changed(datasets=[("acme", "web"), ("evil", "web")]),
    "a dataset missing": _changed(datasets=[("acme", "api")]),
    "a dataset too many": _changed(datasets=[("acme", "web"), ("acme", "x")]),
    "another key": _changed(block={"key": "blocks/1/acme/other/block.bin"}),
    "no size": _changed(block={"size": 0}),
    "metadata that is none": _changed(block={"metadata": b"\xff\xff"}),
}


@pytest.mark.parametrize("spoil", BAD_RESULTS.values(), ids=BAD_RESULTS.keys())
def test_a_result_that_does_not_fit_is_refused_and_the_sources_stay(service: Service, spoil) -> None:
    service.add_segments(20)
    service.add_segments(20, shard=9)
    worker = service.worker()
    bad, good = worker.take(2)
    answer = worker.poll(
        worker.success(bad.job, spoil(merged(bad))), worker.success(good.job, merged(good)), capacity=0
    )
    assert answer.leases == ()
    job = Job.objects.get(name=bad.job)
    assert (job.state, job.failures) == ("waiting", 1)
    assert Attempt.objects.get(job=job).outcome == "refused"
    assert Attempt.objects.get(job=job).reason["error_class"] in {"ResultRefused", "InvalidMessage"}
    assert Block.objects.filter(owner_job=job, state="owned").count() == 20
    assert Job.objects.get(name=good.job).state == "done"


@pytest.mark.parametrize("result", [None, {}, {"kind": "profiles"}, {"kind": "profiles", "sources": [1], "blocks": 7}])
def test_a_result_that_is_none_is_refused(service: Service, result) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(relabelled(worker.success(spec.job), result=result), capacity=0)
    assert Attempt.objects.get().outcome == "refused"
    assert service.states() == {"owned": 20}


def test_an_id_that_was_accepted_before_is_refused_as_a_result(service: Service) -> None:
    taken = block_meta(ulid(service.clock.now_ms, 77), level=1, tenant="acme")
    service.add(taken)
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    result = replace(merged(spec), blocks=(result_block(taken),))
    worker.poll(worker.success(spec.job, result), capacity=0)
    assert Attempt.objects.get().outcome == "refused"


def test_of_two_results_with_one_id_in_a_poll_the_second_is_refused(service: Service) -> None:
    now_ms = service.clock.now_ms
    service.add(*(block_meta(ulid(now_ms, number)) for number in range(40)))
    worker = service.worker()
    first, second = worker.take(2)
    twin = replace(merged(second), blocks=merged(first).blocks)
    worker.poll(worker.success(first.job), worker.success(second.job, twin), capacity=0)
    assert Attempt.objects.get(job__name=first.job).outcome == "completed"
    assert Attempt.objects.get(job__name=second.job).outcome == "refused"
    assert service.states() == {"replaced": 20, "owned": 20, "queued": 1}
    check_invariants()


def test_a_source_that_is_no_longer_owned_refuses_the_whole_completion(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    lost = Block.objects.first()
    Block.objects.filter(id=lost.id).update(state="parked", parked_reason="an operator took it")
    worker.poll(worker.success(spec.job), capacity=0)
    assert Attempt.objects.get().outcome == "refused"
    assert service.states() == {"owned": 19, "parked": 1}
    Block.objects.filter(id=lost.id).update(state="owned", parked_reason="")


def test_the_queue_limit_stops_planning(service: Service) -> None:
    Limits.objects.update(queue_max=2)
    for _ in range(3):
        service.add_segments(20)
    worker = service.worker()
    assert len(worker.take(5)) == 2
    assert worker.take(5) == []
    worker.poll(worker.success(next(iter(worker.held))), capacity=0)
    assert len(worker.take(5)) == 1


def test_parked_jobs_do_not_block_the_queue(service: Service) -> None:
    """Sheet 17.1: a queue full of faulty jobs must not stop new ones."""
    Limits.objects.update(queue_max=1, failures_max=1)
    service.add_segments(20)
    service.add_segments(20)
    worker = service.worker()
    for _ in range(2):
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, REASON), capacity=0)
    assert Job.objects.get().state == "parked"
    [other] = worker.take()
    assert other.job != spec.job


def test_without_a_failure_limit_a_job_is_tried_for_ever(service: Service) -> None:
    Limits.objects.update(failures_max=0)
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    Job.objects.update(failures=1000)
    worker.poll(worker.released(spec.job, REASON), capacity=0)
    assert len(worker.take()) == 1
    assert Job.objects.get().failures == 1001


def test_a_clock_that_jumps_ahead_ends_no_lease_at_once(service: Service) -> None:
    service.add_segments(20)
    holder, other = service.worker(), service.worker()
    [spec] = holder.take()
    service.clock.advance(86_400)
    assert other.take() == []
    assert holder.poll(holder.running(spec.job), capacity=0).leases != ()
    service.clock.advance(1)
    assert other.take() == []


def test_a_crashed_workers_job_is_reassigned_after_an_outage(service: Service) -> None:
    service.add_segments(20)
    service.worker().take()
    service.clock.advance(3600)
    other = service.worker()
    for _ in range(4):
        if other.take():
            break
        service.clock.advance(10)
    assert len(other.held) == 1


def test_command_time_never_goes_back(service: Service) -> None:
    service.add_segments(20)
    service.add_segments(20)
    worker = service.worker()
    worker.take()
    service.clock.advance(-86_400)
    worker.take()
    times = list(Command.objects.order_by("index").values_list("command_time_ms", flat=True))
    assert times == sorted(times)


def test_a_clock_that_goes_back_before_the_first_command_loses_no_time(service: Service) -> None:
    """Found by the state machine: command time must be fixed by the first who asks for it, not by the first command."""
    service.add_segments(1)
    service.clock.advance(-86_400)
    worker = service.worker()
    for _ in range(6):
        service.clock.advance(14)
        worker.take()
    assert len(worker.held) == 1


def test_a_workers_name_belongs_to_its_credential(service: Service) -> None:
    service.worker("node-1").poll()
    other = service.worker("other")
    other.name = "node-1"
    with pytest.raises(NameTaken, match="node-1"):
        other.poll()
    revoke_credential(name="node-1", actor="test")
    other.poll()
