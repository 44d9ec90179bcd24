"""The schedule in memory keeps the contract of the tables: one history, both decide and end the same after each step.

Simulations are worth what this test holds. Row ids and tokens differ (both only grow); everything else is compared: the
change set of each command, every job, every block, the sums of every queue.

Only segments become jobs here. Where several tenants compete the two may differ: in the tables a tenant that wakes up
starts where the lane is, in memory where it was when it fell asleep.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core import ulids
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.model import DATASET_PROFILES
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from engine.protocol.messages import JobUpdate, UpdateStatus
from engine.schedule.fairness import WEIGHT_DEFAULT
from engine.schedule.model import ChangeSet, JobState
from engine.simulation.memory.command_clock import CommandClock
from engine.simulation.memory.rows import NewBlock, Share
from engine.simulation.memory.schedule import MemorySchedule
from engine.simulation.memory.service import MemoryService, PollFact
from engine.simulation.memory.snapshots import PollRequest, WorkerReport
from tests.block_factory import block_meta, merged, segment_ids
from tests.database import ManualClock
from tests.webadmin.conftest import clock, service  # noqa: F401  (fixtures)
from tests.webadmin.service import REASON, FakeWorker, Service, check_invariants, rolled_back
from webadmin.lanes.profiles.level_models import LevelPolicy, LevelQueue
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.planning.level_policies import LevelPolicies
from webadmin.schedule.command_log import advance_clock, move_head, take_head, write_command
from webadmin.schedule.models import Command, Job, Limits
from webadmin.schedule.queries import limits_now, schedule_limits

START_MS = 1_790_000_000_000
LANE = "profiles"
FINAL_LEVEL = 3
WORKERS = ("node-0", "node-1")
TENANTS = ("acme", "beta")
OF_ONE_RUN = {"token", "replaces_token", "index"}
"""What the two count by themselves."""


class Twins:
    """The tables, and the schedule in memory beside them."""

    def __init__(self, manual: ManualClock) -> None:
        manual.now_ms = START_MS
        self.clock = manual
        LevelPolicy.objects.filter(level=0).update(blocks_max=2, age_seconds=20)
        LevelPolicy.objects.filter(level__gt=0).update(blocks_max=1000, age_seconds=10**6)
        Limits.objects.update(failures_max=1, queue_max=4)
        self.tables = Service(manual)
        advance_clock(actor="test")
        policies = LevelPolicies()
        self.memory = MemorySchedule(
            limits=schedule_limits(limits_now(START_MS)),
            policies={level: policies.of(LANE, "", level) for level in range(FINAL_LEVEL)},
            cleanup_delay_ms=Limits.objects.get().cleanup_delay_seconds * 1000,
            clock=CommandClock(START_MS),
        )
        self.facts: list[PollFact] = []
        self.service = MemoryService(self.memory, self.facts.append)
        self.workers = {name: self.tables.worker(name) for name in WORKERS}
        self.tokens: dict[str, int] = {}
        self.count = 0
        self.last_index = _last_index()

    def wait(self, seconds: int) -> None:
        """Let time pass, and command time with it: what an outage does is not compared."""
        self.clock.advance(seconds)
        self.memory.clock.wall_ms = self.clock.now_ms
        with transaction.atomic():
            head, time = take_head()
            index = write_command(kind=Command.Kind.ADVANCE_CLOCK, actor="test", time=time, change_set={})
            move_head(index, time, live_jobs=head.live_job_count)
        self.memory.clock.move(self.memory.time())

    def add(self, count: int, shard: int, tenants: tuple[str, ...]) -> None:
        ids = segment_ids(self.clock.now_ms, count, first=self.count)
        self.count += count
        metas = [block_meta(block_id, shard=shard, datasets=[(name, "web") for name in tenants]) for block_id in ids]
        told = self.tables.add(*metas)
        shares = tuple(Share(name, 1, 1, "web") for name in tenants)
        blocks = [
            NewBlock(meta.id, "", shard, 0, meta.size, START_MS, shares, max_time_ms=meta.max_time_ms) for meta in metas
        ]
        assert self.memory.add_blocks([_created(block) for block in blocks]).accepted == told.accepted

    def poll(self, name: str, capacity: int, wishes: dict[str, str]) -> None:
        """Poll both as this worker; ``wishes`` says for each job that it holds how it went."""
        worker, updates, told = self.workers[name], [], []
        for job, wish in wishes.items():
            update, plain = self._report(worker, job, wish)
            updates.append(update)
            told.append(plain)
        for job, wish in wishes.items():
            if wish != "running":
                del worker.held[job]
        answer = worker.poll(*updates, capacity=capacity)
        for row in self.memory.queues.tenants.values():
            row.weight = WEIGHT_DEFAULT  # simulated worlds begin with another one
        renewed, assigned = self.service.poll(PollRequest(name, capacity, tuple(told)))
        kept = {renewal.job.name for renewal in renewed}
        assert {lease.job for lease in answer.leases} == kept
        assert [given.job for given in answer.assignments] == [job.name for job in assigned]
        self.tokens |= {job.name: job.token for job in assigned}
        for job in {job for job, wish in wishes.items() if wish == "running"} - kept:
            worker.held.pop(job, None)

    def _report(self, worker: FakeWorker, job: str, wish: str) -> tuple[JobUpdate, WorkerReport]:
        token = self.tokens[job]
        if wish == "running":
            return worker.running(job), WorkerReport(
                JobUpdate(job=job, token="", status=UpdateStatus.IN_PROGRESS), token
            )
        if wish in ("failed", "released"):
            reason = REASON if wish == "failed" else None
            update = worker.released(job, reason)
            return update, WorkerReport(replace(update, token=""), token)
        result = merged(ProfileMergeSpec.from_json(worker.held[job].spec))
        update = worker.success(job, result)
        return update, WorkerReport(
            JobUpdate(job=job, token="", status=UpdateStatus.SUCCESS), token, _in_memory(result)
        )

    def check(self) -> None:
        """Both are the same."""
        assert self._new_commands() == self._new_facts()
        for in_tables, in_memory in zip(_tables(), _memory(self.memory), strict=True):
            differing = {key for key in in_tables | in_memory if in_tables.get(key) != in_memory.get(key)}
            told = "\n".join(
                f"{key}: {in_tables.get(key)} in the tables, {in_memory.get(key)} in memory" for key in differing
            )
            assert not differing, told

    def _new_commands(self) -> list[Any]:
        rows = Command.objects.filter(index__gt=self.last_index, kind="update_plan").order_by("index")
        self.last_index = _last_index()
        return [_plain(row.change_set) for row in rows]

    def _new_facts(self) -> list[Any]:
        found = [_plain(_json(fact.change_set)) for fact in self.facts if fact.applied is not None]
        self.facts.clear()
        return found


def _last_index() -> int:
    return Command.objects.order_by("-index").values_list("index", flat=True).first() or 0


def _created(block: NewBlock) -> NewBlock:
    return replace(block, created_at_ms=ulids.time_ms(block.ulid))


def _in_memory(result: ProfileMergeResult) -> ProfileMergeResult:
    """Return the same blocks as the simulation writes them: their metadata says just whose data is in them."""
    blocks = []
    for block in result.blocks:
        meta = decode_metadata(block.metadata)
        services = [dataset.name for dataset in meta.datasets if dataset.format == DATASET_PROFILES]
        text = ";".join([meta.tenant, *(f"{name} 1 1" for name in sorted(services))])
        blocks.append(replace(block, metadata=text.encode()))
    return replace(result, blocks=tuple(blocks))


def _json(change_set: ChangeSet) -> dict[str, Any]:
    return change_set.to_json()


def _plain(value: Any) -> Any:
    """Return a change set without what each counts by itself."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if name not in OF_ONE_RUN}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _tables() -> tuple[Any, Any, Any]:
    jobs = {
        job.name: (
            *(job.state, job.tenant, job.shard, job.level, job.failures, job.priority_ms, bool(job.parked_reason)),
            job.worker.name if job.state == JobState.LEASED else "",
            job.lease_expires_ms if job.state == JobState.LEASED else 0,
            tuple(job.spec["sources"]),
        )
        for job in Job.objects.exclude(state=JobState.DONE).select_related("worker")
    }
    blocks = {
        block.ulid: (
            block.state,
            block.shard,
            block.level,
            block.size_bytes,
            block.owner_job.name if block.owner_job and block.state == "owned" else "",
        )
        for block in Block.objects.select_related("owner_job")
    }
    queues = {
        (queue.tenant, queue.shard, queue.level): (queue.block_count, queue.byte_count)
        for queue in LevelQueue.objects.filter(block_count__gt=0)
    }
    return jobs, blocks, queues


def _memory(schedule: MemorySchedule) -> tuple[Any, Any, Any]:
    jobs = {
        job.name: (
            *(
                job.state.value,
                job.tenant,
                job.shard,
                job.level,
                job.failures,
                job.priority_ms,
                bool(job.parked_reason),
            ),
            job.worker if job.state is JobState.LEASED else "",
            job.lease_expires_ms if job.state is JobState.LEASED else 0,
            tuple(block.ulid for block in job.sources),
        )
        for job in schedule.jobs.values()
    }
    blocks = {
        block.ulid: (
            block.state.value,
            block.shard,
            block.level,
            block.size_bytes,
            block.owner.name if block.owner else "",
        )
        for block in schedule.blocks.values()
    }
    queues = {
        (queue.tenant, queue.shard, queue.level): (len(queue.entries), queue.byte_count)
        for queue in schedule.queues.by_id.values()
        if queue.entries
    }
    return jobs, blocks, queues


adds = st.tuples(st.just("add"), st.integers(1, 4), st.integers(1, 2), st.sampled_from([("acme",), ("beta",), TENANTS]))
waits = st.tuples(st.just("wait"), st.integers(1, 14))
outcomes = st.lists(
    st.sampled_from(["success", "success", "running", "failed", "released", "silent"]), min_size=4, max_size=4
)
polls = st.tuples(st.just("poll"), st.sampled_from(WORKERS), st.integers(0, 3), outcomes)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=st.lists(st.one_of(adds, waits, polls, polls), min_size=4, max_size=25))
def test_tables_and_memory_decide_and_end_the_same(service: Service, history: list[tuple[Any, ...]]) -> None:  # noqa: F811
    with rolled_back():
        twins = Twins(service.clock)
        for step in history:
            _take(twins, step)
            twins.check()
        check_invariants()


def _take(twins: Twins, step: tuple[Any, ...]) -> None:
    what, *words = step
    if what == "add":
        twins.add(*words)
    elif what == "wait":
        twins.wait(*words)
    else:
        name, capacity, wishes = words
        held = list(twins.workers[name].held)
        twins.poll(name, capacity, {job: wish for job, wish in zip(held, wishes, strict=False) if wish != "silent"})


@pytest.mark.parametrize("failures", [1, 4])
def test_the_comparison_notices_a_difference(service: Service, failures: int) -> None:  # noqa: F811
    twins = Twins(service.clock)
    twins.add(2, 1, ("acme",))
    twins.poll("node-0", 1, {})
    twins.check()
    next(iter(twins.memory.jobs.values())).failures = failures
    with pytest.raises(AssertionError):
        twins.check()
