"""What every poll keeps under both policies, on arbitrary snapshots (invariants 9, 10, 12, 14, 17, 22, 24)."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.lanes.profiles.jobs import ProfileMergeResult
from engine.lanes.profiles.plan.consolidation import plan_queues
from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, QueuedBlock
from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from engine.schedule.limits import ScopeKind
from engine.schedule.model import (
    ChangeSet,
    JobState,
    JobView,
    Report,
    ScheduleLimits,
    ScheduleSnapshot,
)
from engine.schedule.pauses import PausedScope, PauseMode, is_paused
from engine.schedule.prepare import prepare as prepare_planned

TENANTS = ("", "acme", "beta")
LEASE_MS = 10
REASON = FailureReason(error_class="Truncated", message="too short")
RESULT = ProfileMergeResult(sources=(), blocks=())

jobs_strategy = st.lists(
    st.builds(
        dict,
        tenant=st.sampled_from(TENANTS),
        level=st.integers(0, 2),
        state=st.sampled_from([JobState.WAITING, JobState.LEASED]),
        worker=st.sampled_from(["me", "other"]),
        lease_expires_ms=st.integers(0, 100),
        failures=st.integers(0, 5),
        failures_max=st.sampled_from([None, None, 0, 1, 4]),
        priority_ms=st.integers(0, 200),
        size_bytes=st.integers(0, 1 << 24),
    ),
    max_size=12,
).map(
    lambda rows: tuple(
        JobView(id=n, name=f"job-{n:02}", lane="profiles", token=n + 1, **row) for n, row in enumerate(rows)
    )
)


def _queue(number: int, tenant: str, level: int, arrivals: list[tuple[int, int]]) -> BlockQueue:
    blocks = [
        QueuedBlock(
            id=100 * number + n, ulid=f"{number:02}{n:03}", arrived_at_ms=at, created_at_ms=created, size_bytes=9
        )
        for n, (at, created) in enumerate(sorted(arrivals))
    ]
    return BlockQueue(
        id=number,
        lane="profiles",
        tenant=tenant,
        shard=number,
        level=level,
        policy=LevelPolicy(blocks_max=level + 1, age_ms=30, spread_ms=40),  # the reference knows one per level
        blocks=tuple(blocks),
    )


queues_strategy = st.lists(
    st.tuples(
        st.sampled_from(TENANTS),
        st.integers(0, 2),
        st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=9),
    ),
    max_size=5,
).map(lambda rows: tuple(_queue(number, *row) for number, row in enumerate(rows, 1)))

paused_strategy = st.lists(
    st.builds(
        PausedScope,
        st.sampled_from([ScopeKind.TENANT, ScopeKind.LEVEL]),
        st.sampled_from(["", "acme", "0", "1"]),
        st.sampled_from(PauseMode),
    ),
    max_size=2,
).map(tuple)


def prepare(snapshot: ScheduleSnapshot) -> ChangeSet:
    """Plan the jobs of the block queues, then decide."""
    planned = plan_queues(snapshot.queues, now_ms=snapshot.now_ms, job_max=snapshot.capacity)
    return prepare_planned(replace(snapshot, queues=planned))


@st.composite
def snapshots(draw: st.DrawFn) -> ScheduleSnapshot:
    """Snapshots whose queues are block queues, as ``prepare`` below expects them."""
    jobs = draw(jobs_strategy)
    spoken = draw(st.lists(st.sampled_from(jobs), unique=True)) if jobs else []
    reports = tuple(_report(job, draw(st.sampled_from(UpdateStatus)), draw(st.booleans())) for job in spoken)
    return ScheduleSnapshot(
        now_ms=draw(st.integers(0, 150)),
        worker="me",
        capacity=draw(st.integers(0, 6)),
        limits=ScheduleLimits(
            lease_ms=LEASE_MS,
            failures_max=draw(st.integers(0, 3)),
            queue_max=draw(st.sampled_from([0, 1, 4, 12])),
        ),
        reports=reports,
        reported={job.name: job for job in spoken},
        assignable=jobs,
        queues=draw(queues_strategy),
        live_job_count=len(jobs),
        paused=draw(paused_strategy),
    )


def _report(job: JobView, status: UpdateStatus, is_good: bool) -> Report:
    update = JobUpdate(job=job.name, token="", status=status, reason=None if is_good else REASON)
    return Report(
        update=update,
        token=job.token if is_good else job.token + 1,
        result=RESULT if status is UpdateStatus.SUCCESS else None,
    )


@pytest.mark.slow
@pytest.mark.row("invariant-17", "invariant-22")
@settings(max_examples=60)
@given(snapshots())
def test_preparing_is_pure_and_deterministic(snapshot: ScheduleSnapshot) -> None:
    before = copy.deepcopy(snapshot)
    first = prepare(snapshot)
    assert snapshot == before
    assert prepare(before) == first


@pytest.mark.slow
@pytest.mark.row("invariant-22")
@settings(max_examples=60)
@given(snapshots(), st.randoms())
def test_the_order_of_rows_has_no_effect(snapshot: ScheduleSnapshot, random) -> None:
    shuffled = replace(
        snapshot,
        assignable=tuple(random.sample(snapshot.assignable, len(snapshot.assignable))),
        queues=tuple(random.sample(snapshot.queues, len(snapshot.queues))),
    )
    assert prepare(shuffled) == prepare(snapshot)


@pytest.mark.slow
@pytest.mark.row("invariant-24", "invariant-10", "invariant-14")
@settings(max_examples=60)
@given(snapshots())
def test_capacity_failures_and_batches_are_bounded(snapshot: ScheduleSnapshot) -> None:
    changes = prepare(snapshot)
    assert len(changes.assigned) + len(changes.created) <= snapshot.capacity
    for assigned in changes.assigned:
        is_over = assigned.job.has_expired(snapshot.now_ms)
        assert is_over or assigned.job.state is JobState.WAITING
        assert assigned.failures == assigned.job.failures + is_over
        assert not (is_over and assigned.job.is_exhausted(snapshot.limits)), "no run is left"
    for created in changes.created:
        plan = created.plan
        queue = next(queue for queue in snapshot.queues if queue.id == plan.queue_id)
        assert (plan.lane, plan.tenant, plan.shard, plan.level) == queue.key()
        assert set(plan.blocks) <= set(queue.blocks)
        assert len(plan.blocks) <= queue.policy.blocks_max
        created_ms = [block.created_at_ms for block in plan.blocks]
        assert max(created_ms) - min(created_ms) <= queue.policy.spread_ms
    blocks = [block.id for created in changes.created for block in created.plan.blocks]
    assert len(blocks) == len(set(blocks)), "no block is in two jobs"


@settings(max_examples=60)
@given(snapshots())
def test_each_job_is_changed_once_and_only_if_it_may_be(snapshot: ScheduleSnapshot) -> None:
    changes = prepare(snapshot)
    touched = [c.job.name for c in (*changes.renewed, *changes.completed, *changes.returned, *changes.assigned)]
    assert len(touched) == len(set(touched))
    named = {report.update.job for report in snapshot.reports}
    assert not named & {assigned.job.name for assigned in changes.assigned}
    for place in [*(a.job for a in changes.assigned), *(c.plan for c in changes.created)]:
        planning = not isinstance(place, JobView)
        assert not is_paused(
            snapshot.paused, lane=place.lane, tenant=place.tenant, level=place.level, planning=planning
        )


def _after(snapshot: ScheduleSnapshot, changes: ChangeSet) -> int:
    parked = sum(bool(returned.parked_reason) for returned in changes.returned)
    return snapshot.live_job_count - len(changes.completed) - parked + len(changes.created)


@pytest.mark.slow
@pytest.mark.row("invariant-11")
@settings(max_examples=60)
@given(snapshots())
def test_the_queue_never_grows_above_its_limit(snapshot: ScheduleSnapshot) -> None:
    changes = prepare(snapshot)
    if changes.created and snapshot.limits.queue_max:
        assert _after(snapshot, changes) <= snapshot.limits.queue_max


@pytest.mark.row("invariant-9")
@settings(max_examples=60)
@given(snapshots())
def test_jobs_of_a_tenant_are_assigned_in_priority_order(snapshot: ScheduleSnapshot) -> None:
    """The fair variant: among one tenant's jobs, those assigned come before those that were not."""
    changes = prepare(snapshot)
    assigned = {a.job.name for a in changes.assigned}
    named = {report.update.job for report in snapshot.reports}
    for job in snapshot.assignable:
        is_over = job.has_expired(snapshot.now_ms)
        is_free = job.state is JobState.WAITING or (is_over and not job.is_exhausted(snapshot.limits))
        stands_still = is_paused(snapshot.paused, lane=job.lane, tenant=job.tenant, level=job.level)
        if job.name in assigned | named or not is_free or stands_still:
            continue
        assert len(changes.assigned) + len(changes.created) == snapshot.capacity, "somebody waits for nothing"
        assert all(a.job.order() < job.order() for a in changes.assigned if a.job.tenant == job.tenant)


@pytest.mark.row("invariant-12")
@given(st.integers(1, 5), queues_strategy.filter(bool))
def test_a_schedule_full_of_faulty_jobs_assigns_new_jobs(limit: int, queues: tuple[BlockQueue, ...]) -> None:
    faulty = tuple(
        JobView(id=n, name=f"{n}", lane="profiles", level=0, state=JobState.LEASED, token=1, worker="gone", failures=3)
        for n in range(limit)
    )
    snapshot = ScheduleSnapshot(
        now_ms=1000,
        worker="me",
        capacity=1,
        limits=ScheduleLimits(lease_ms=10_000, failures_max=3, queue_max=limit),
        assignable=faulty,
        queues=queues,
        live_job_count=limit,
    )
    changes = prepare(snapshot)
    assert len(changes.created) == 1
    assert len(changes.returned) == 1, "one is parked for the one that is added"
    assert changes.returned[0].parked_reason


@pytest.mark.row("invariant-15")
@given(queues_strategy)
def test_blocks_that_are_old_enough_are_planned_when_there_is_capacity(queues: tuple[BlockQueue, ...]) -> None:
    snapshot = ScheduleSnapshot(now_ms=131, worker="me", capacity=100, limits=ScheduleLimits(), queues=queues)
    planned = {block.id for created in prepare(snapshot).created for block in created.plan.blocks}
    assert planned == {block.id for queue in queues for block in queue.blocks}


@pytest.mark.row("S34")
def test_polls_until_a_high_level_is_served_do_not_depend_on_the_backlog_below() -> None:
    """The same tenant, one slot, a poll a second: level 0 is always full, level 2 is one large job."""
    for backlog in (5, 100):
        rounds, queues = 0, {0: 0, 2: 0}
        policy = LevelPolicy(blocks_max=1, age_ms=1, spread_ms=1)
        while True:
            rounds += 1
            low = tuple(
                QueuedBlock(
                    id=rounds * 10_000 + n, ulid=f"{rounds}-{n}", arrived_at_ms=0, created_at_ms=0, size_bytes=1
                )
                for n in range(backlog)
            )
            high = (QueuedBlock(id=1, ulid="high", arrived_at_ms=0, created_at_ms=0, size_bytes=1 << 40),)
            places = {0: low, 2: high}
            snapshot = ScheduleSnapshot(
                now_ms=rounds * 1000,
                worker="me",
                capacity=1,
                limits=ScheduleLimits(),
                queues=tuple(
                    BlockQueue(
                        id=level,
                        lane="profiles",
                        tenant="acme",
                        shard=1,
                        level=level,
                        policy=policy,
                        blocks=blocks,
                        served_at_ms=queues[level],
                    )
                    for level, blocks in places.items()
                ),
            )
            [created] = prepare(snapshot).created
            queues[created.plan.level] = snapshot.now_ms
            if created.plan.level == 2:
                break
        assert 600 <= rounds <= 603, "the delay of the largest job, at a poll a second"
