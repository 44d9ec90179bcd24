"""The schedule in memory: adds, polls, swaps and refusals as in the tables."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from engine.schedule.model import JobState
from engine.schedule.prepare import prepare
from engine.simulation.checks.quiescence import check_sums, dump
from engine.simulation.environment.worker import FAILED, Run
from engine.simulation.memory.rows import BlockState, NewBlock
from engine.simulation.memory.schedule import MemorySchedule, StaleSnapshot
from engine.simulation.memory.snapshots import PollRequest, read_poll
from engine.simulation.scenario import START_MS
from tests.engine.simulation.worlds import POLICY, memory_schedule, poll, running, segments, success


def _leased(**limits: int) -> tuple[MemorySchedule, Run]:
    schedule = memory_schedule(**limits)
    schedule.add_blocks(segments(2))
    [job] = poll(schedule)
    return schedule, Run.start(job)


def test_two_segments_become_a_block_per_tenant() -> None:
    schedule = memory_schedule()
    schedule.add_blocks(segments(2, tenants=("acme", "beta")))
    [job] = poll(schedule)
    assert [block.state for block in job.sources] == [BlockState.OWNED] * 2
    poll(schedule, success(job), capacity=0)
    live = [block for block in schedule.blocks.values() if block.state is BlockState.QUEUED]
    assert [(block.tenant, block.level, block.shares[0].count) for block in live] == [("acme", 1, 2), ("beta", 1, 2)]
    assert set(schedule.tombstones) == {block.ulid for block in job.sources}
    check_sums(schedule)


def test_known_blocks_change_nothing_and_other_content_is_a_conflict() -> None:
    schedule = memory_schedule()
    [block] = segments(1)
    assert schedule.add_blocks([block]).accepted == (block.ulid,)
    before, version = dump(schedule), schedule.version
    assert schedule.add_blocks([block]).duplicates == (block.ulid,)
    other = NewBlock(block.ulid, "", 1, 0, block.size_bytes + 1, block.created_at_ms, block.shares)
    assert schedule.add_blocks([other]).conflicting == (block.ulid,)
    assert (dump(schedule), schedule.version) == (before, version)


@pytest.mark.row("S33")
def test_a_report_under_an_old_token_changes_nothing() -> None:
    schedule, run = _leased()
    late = success(schedule.jobs[run.job])
    for _ in range(3):
        schedule.clock.wall_ms += 14_000
        poll(schedule, capacity=0, worker="other")
        schedule.advance_clock()
    schedule.clock.wall_ms += 16_000
    [taken] = poll(schedule, worker="other")
    assert (taken.name, taken.failures) == (run.job, 1)
    before = dump(schedule)
    poll(schedule, late, capacity=0)
    assert dump(schedule) == before
    poll(schedule, success(taken), capacity=0, worker="other")
    assert taken.state is JobState.DONE


@pytest.mark.row("R7")
def test_a_swap_is_refused_whole_unless_the_job_owns_every_source() -> None:
    schedule, run = _leased()
    view = read_poll(schedule, PollRequest("node", 0, (success(schedule.jobs[run.job]),)))
    change_set = prepare(view.snapshot)
    schedule.jobs[run.job].sources[1].owner = None
    before = dump(schedule)
    with pytest.raises(StaleSnapshot, match="sources"):
        schedule.apply(change_set, "node", view.replacements)
    assert dump(schedule) == before


@pytest.mark.row("S32")
def test_of_two_polls_prepared_at_once_one_gets_the_job() -> None:
    schedule = memory_schedule()
    schedule.add_blocks(segments(2))
    views = [read_poll(schedule, PollRequest(worker, 1)) for worker in ("one", "two")]
    change_sets = [prepare(view.snapshot) for view in views]
    schedule.apply(change_sets[0], "one", {})
    with pytest.raises(StaleSnapshot):
        schedule.apply(change_sets[1], "two", {})
    assert [job.worker for job in schedule.jobs.values()] == ["one"]


@pytest.mark.row("S27")
def test_a_lease_holds_until_its_last_moment() -> None:
    schedule, _ = _leased()
    schedule.clock.wall_ms += 15_000
    assert poll(schedule, worker="other") == ()
    schedule.advance_clock()
    schedule.clock.wall_ms += 1
    assert len(poll(schedule, worker="other")) == 1


def test_a_refresh_keeps_the_token_and_never_shortens_the_lease() -> None:
    schedule, run = _leased()
    job = schedule.jobs[run.job]
    schedule.clock.wall_ms += 5_000
    poll(schedule, running(job), capacity=0)
    assert (job.token, job.lease_expires_ms) == (run.token, schedule.time().now_ms + 15_000)
    schedule.clock.wall_ms -= 60_000
    until_ms = job.lease_expires_ms
    poll(schedule, running(job), capacity=0)
    assert job.lease_expires_ms == until_ms


@pytest.mark.row("S18")
def test_in_a_schedule_full_of_faulty_jobs_new_jobs_replace_them() -> None:
    schedule = memory_schedule(queue_max=2, failures_max=1)
    schedule.add_blocks(segments(6))
    first = poll(schedule, capacity=6)
    assert len(first) == 2
    for _ in range(12):
        for job in [job for job in schedule.jobs.values() if job.state is JobState.LEASED]:
            run = Run.start(job)
            run.give_back(FAILED)
            poll(schedule, run.report, capacity=0)
        poll(schedule, capacity=2)
    assert schedule.parked_count == 3
    assert all(job.parked_reason for job in schedule.jobs.values())


def test_a_requeued_job_runs_again_with_its_failures_forgotten() -> None:
    schedule, run = _leased(failures_max=1)
    for _ in range(2):
        run = Run.start(schedule.jobs[run.job])
        run.give_back(FAILED)
        poll(schedule, run.report, capacity=0)
        poll(schedule, capacity=1)
    job = schedule.jobs[run.job]
    assert job.state is JobState.PARKED
    schedule.requeue(job)
    assert poll(schedule) == (job,)
    assert job.failures == 0


def test_objects_are_deleted_after_the_delay_and_a_second_confirmation_is_harmless() -> None:
    schedule, run = _leased()
    job = schedule.jobs[run.job]
    poll(schedule, success(job), capacity=0)
    for _ in range(2):
        schedule.clock.wall_ms += 15_000
        schedule.advance_clock()
    assert schedule.dispatch_deletions(10) == []
    schedule.clock.wall_ms += 1
    due = schedule.dispatch_deletions(10)
    assert [tombstone.ulid for tombstone in due] == [block.ulid for block in job.sources]
    schedule.confirm_deletion(due[0].ulid)
    before = dump(schedule)
    schedule.confirm_deletion(due[0].ulid)
    assert dump(schedule) == before
    assert job.sources[0].state is BlockState.DELETED


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_equal_arrivals_changes_no_plan(seed: int) -> None:
    blocks = [*segments(7), *segments(6, first=7, shard=2)]
    plans = []
    for order in (blocks, random.Random(seed).sample(blocks, len(blocks))):
        schedule = memory_schedule()
        for block in order:
            schedule.add_blocks([block])
        assigned = poll(schedule, capacity=10)
        plans.append([(job.name, [block.ulid for block in job.sources]) for job in assigned])
    assert sorted(plans[0]) == sorted(plans[1])
    assert len(plans[0]) == 6


def test_partial_batches_of_two_shards_become_one_job_in_the_shard_of_the_newer() -> None:
    schedule = memory_schedule(replace(POLICY, partial_batch_bytes=1 << 20))
    for shard in (1, 2):
        schedule.add_blocks(
            [replace(block, created_at_ms=START_MS + shard) for block in segments(2, first=10 * shard, shard=shard)]
        )
        schedule.clock.wall_ms += 1
        [job] = poll(schedule)
        poll(schedule, success(job), capacity=0)
    assert poll(schedule) == (), "one block of a shard is no job before its time"
    for _ in range(3):
        schedule.clock.wall_ms += 10_000
        schedule.advance_clock()
    [joined] = poll(schedule)
    assert [block.shard for block in joined.sources] == [1, 2]
    assert (joined.tenant, joined.shard, joined.level) == ("acme", 2, 1)
    assert schedule.queues.block_count == 0
    poll(schedule, success(joined), capacity=0)
    [block] = [block for block in schedule.blocks.values() if block.level == 2]
    assert (block.shard, block.shares[0].count) == (2, 4)
    check_sums(schedule)
