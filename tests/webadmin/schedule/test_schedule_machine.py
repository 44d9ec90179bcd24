"""A state machine drives the schedule with a dictionary beside it.

Writers add (and repeat) segments; workers poll, crash, report late, twice, or something wrong; the clock runs, jumps
and goes back. The model is a dictionary of what must be true: which blocks exist, who may report on which job, how
often a job failed. After each step the model and the tables agree and all invariants hold; at the end every segment's
data is live exactly once.

Hypothesis prints the steps of a failing run and the line that replays it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from engine.formats.profile_block.container.metadata import decode_metadata
from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.protocol.messages import Assignment, JobUpdate, UpdateStatus
from tests.block_factory import block_meta, merged, segment_ids
from tests.database import ManualClock
from tests.webadmin.schedule.between_steps import BetweenSteps, check_history, rows_of_others, watched_poll
from tests.webadmin.service import REASON, FakeWorker, Service, check_invariants, rolled_back
from webadmin.base.access.models import WorkerCredential
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.queries import IndexQuery, find_blocks
from webadmin.lanes.profiles.states import LIVE_STATES
from webadmin.schedule.models import Command, Job, Limits, LogHead
from webadmin.schedule.polls.dry_run import dry_poll
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.requeue_jobs import requeue

FAILURES_MAX = 3
QUEUE_MAX = 4
"""So few that faulty jobs soon fill the schedule."""
WORKERS = 3
workers = st.integers(0, WORKERS - 1)


@dataclass
class ModelJob:
    """What the dictionary knows of a job: who may report on it under which token, and how often it failed."""

    holder: int | None
    token: str
    fence: int
    spec: ProfileMergeSpec
    failures: int = 0
    is_over: bool = False
    tokens: list[int] = field(default_factory=list)


class ScheduleMachine(RuleBasedStateMachine):
    """Rules are what the world does; ``jobs`` and ``blocks`` are the model."""

    clock: ManualClock

    def __init__(self) -> None:
        super().__init__()
        self.frame = ExitStack()
        self.frame.enter_context(rolled_back())
        self.clock.now_ms = 1_790_000_000_000
        self.service = Service(self.clock)
        self.workers: list[FakeWorker] = [self.service.worker(f"node-{n}") for n in range(WORKERS)]
        # Small batches, so that few steps already reach the upper levels.
        LevelPolicy.objects.update(blocks_max=2, age_seconds=20)
        Limits.objects.update(failures_max=FAILURES_MAX, queue_max=QUEUE_MAX)
        dry_poll(capacity=0)  # whoever asks first starts the log
        self.between = BetweenSteps()
        self.jobs: dict[str, ModelJob] = {}
        self.blocks: set[str] = set()
        self.past: list[tuple[int, str, Assignment]] = []
        self.last_time = 0
        self.tag_count = 0

    def teardown(self) -> None:
        with self.frame:
            self._finish_everything()

    # What writers do

    @rule(count=st.integers(1, 4), shard=st.integers(1, 2), tenant=st.sampled_from(["acme", "beta"]))
    def add_segments(self, count: int, shard: int, tenant: str) -> None:
        ids = segment_ids(self.clock.now_ms, count, first=self.tag_count)
        self.tag_count += count
        metas = [block_meta(block_id, shard=shard, datasets=[(tenant, f"s-{block_id}")]) for block_id in ids]
        assert set(self.service.add(*metas).accepted) == set(ids)
        self.blocks |= set(ids)

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        block_id = data.draw(st.sampled_from(sorted(self.blocks)))
        stored = Block.objects.get(ulid=block_id)
        meta = replace(decode_metadata(bytes(stored.metadata)), size=stored.size_bytes)
        before = self.service.dump()
        assert self.service.add(meta).duplicates == (block_id,)
        assert self.service.dump() == before

    # What workers do

    @rule(number=workers, capacity=st.integers(0, 3))
    def poll(self, number: int, capacity: int) -> None:
        self._poll(number, capacity=capacity)

    @rule(number=workers, capacity=st.integers(0, 2), forgets=st.booleans())
    def report_running(self, number: int, capacity: int, forgets: bool) -> None:
        held = list(self.workers[number].held)[: 1 if forgets else None]
        answer = self._poll(number, *(self.workers[number].running(job) for job in held), capacity=capacity)
        expected = {job for job in held if self._holds(number, self.workers[number].held[job])}
        assert {lease.job for lease in answer.leases} == expected
        for job in set(held) - expected:
            self.workers[number].held.pop(job, None)

    @precondition(lambda self: any(worker.held for worker in self.workers))
    @rule(data=st.data(), capacity=st.integers(0, 2))
    def finish(self, data: st.DataObject, capacity: int) -> None:
        number, job = self._draw_held(data)
        self._report(number, self.workers[number].success(job), capacity)

    @precondition(lambda self: any(worker.held for worker in self.workers))
    @rule(data=st.data(), blames=st.booleans())
    def give_back(self, data: st.DataObject, blames: bool) -> None:
        number, job = self._draw_held(data)
        self._report(number, self.workers[number].released(job, REASON if blames else None), 0)

    @precondition(lambda self: any(worker.held for worker in self.workers))
    @rule(data=st.data())
    def report_a_bad_result(self, data: st.DataObject) -> None:
        number, job = self._draw_held(data)
        result = merged(ProfileMergeSpec.from_json(self.workers[number].held[job].spec))
        self._report(number, self.workers[number].success(job, replace(result, blocks=result.blocks[1:])), 0)

    @rule(number=workers)
    def crash(self, number: int) -> None:
        self.workers[number].held = {}

    @precondition(lambda self: self.past)
    @rule(data=st.data(), status=st.sampled_from(UpdateStatus))
    def report_late_or_twice(self, data: st.DataObject, status: UpdateStatus) -> None:
        """Send what a paused worker, or a lost answer, would send: an old assignment is reported on once more."""
        number, job, given = data.draw(st.sampled_from(self.past))
        result = merged(ProfileMergeSpec.from_json(given.spec)).to_json()
        update = JobUpdate(job=job, token=given.token, status=status, result=result)
        if not self._holds(number, given):
            before = self.service.dump()
            answer = self.workers[number].poll(update, capacity=0)
            assert answer.leases == ()
            after = self.service.dump()
            if len(after["Command"]) > len(before["Command"]):  # who finds that the service was away extends all leases
                for row in (*after["Job"], *before["Job"]):
                    del row["lease_expires_ms"]
            assert self._without_clock(after) == self._without_clock(before)

    # What operators do

    @rule(capacity=st.integers(1, 4))
    def look_ahead(self, capacity: int) -> None:
        """Invariants 17 and 22: deciding changes nothing, and decides the same again."""
        before = self.service.dump()
        assert dry_poll(capacity=capacity) == dry_poll(capacity=capacity)
        assert self.service.dump() == before

    @precondition(lambda self: Job.objects.filter(state="parked").exists())
    @rule(data=st.data())
    def requeue_of_a_tenant(self, data: st.DataObject) -> None:
        """Invariants 13 and 27: what is parked can run again, and no other tenant's jobs are touched."""
        parked = Job.objects.filter(state="parked")
        tenant = data.draw(st.sampled_from(sorted(set(parked.values_list("tenant", flat=True)))))
        before, room = rows_of_others(tenant), QUEUE_MAX - LogHead.objects.get().live_job_count
        wanted = parked.filter(tenant=tenant).count()
        outcome = requeue(JobFilter(tenant=tenant), context=ActionContext(actor="operator"))
        assert len(outcome.changed) == min(wanted, room)
        for name in outcome.changed:
            self.jobs[name].failures = 0
        assert rows_of_others(tenant) == before

    # What time does

    @rule(seconds=st.sampled_from([0.5, 5, 15, 40]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(number=workers)
    def wait_while_only_one_polls(self, number: int) -> None:
        """Let the leases of the others run out, and those this worker does not renew."""
        for _ in range(3):
            self.clock.advance(9)
            self._poll(number, capacity=0)

    @rule(seconds=st.sampled_from([-86_400, -60, -1, 86_400]))
    def jump(self, seconds: int) -> None:
        self.clock.advance(seconds)

    # What must be true after every step

    @invariant()
    def tables_agree_with_the_model(self) -> None:
        check_invariants()
        self.between.check()
        rows = {job.name: job for job in Job.objects.exclude(state="done")}
        open_jobs = {name: job for name, job in self.jobs.items() if not job.is_over}
        assert set(rows) == set(open_jobs)
        for name, job in open_jobs.items():
            assert rows[name].failures == job.failures <= FAILURES_MAX
            assert (rows[name].state == "leased") == (job.holder is not None)
            assert rows[name].token == job.fence
            assert job.tokens == sorted(set(job.tokens)), "tokens only grow"

    @invariant()
    def command_time_never_goes_back(self) -> None:
        now = LogHead.objects.get().command_time_ms
        assert now >= self.last_time
        self.last_time = now

    @invariant()
    def every_segment_is_live_exactly_once(self) -> None:
        """As a reader sees it: invariants 3 and 5."""
        found = find_blocks(IndexQuery(tenants=("acme", "beta"), start_ms=0, end_ms=1 << 60))
        services = Counter(dataset.name for block in found for dataset in block.datasets if dataset.format == 0)
        assert services == Counter(f"s-{block_id}" for block_id in self.blocks)

    # The model's own rules

    def _poll(self, number: int, *updates: JobUpdate, capacity: int):
        worker = self.workers[number]
        parked_before = set(Job.objects.filter(state="parked").values_list("name", flat=True))
        named = {update.job for update in updates}
        with watched_poll(capacity, named):
            answer = worker.poll(*updates, capacity=capacity)
        for given in answer.assignments:
            assert given.job not in named
            self._note_assignment(number, given)
        for job in Job.objects.filter(state="parked").exclude(name__in=parked_before):
            self.jobs[job.name].holder = None
        return answer

    def _note_assignment(self, number: int, given: Assignment) -> None:
        spec = ProfileMergeSpec.from_json(given.spec)
        job = self.jobs.get(given.job)
        if job is None:
            job = self.jobs[given.job] = ModelJob(holder=number, token=given.token, fence=0, spec=spec)
        elif job.holder is not None:
            job.failures += 1  # taken over: the lease had run out
        assert not job.is_over
        assert spec.fence is not None
        job.holder, job.token, job.fence, job.spec = number, given.token, spec.fence, spec
        job.tokens.append(spec.fence)
        self.past.append((number, given.job, given))

    def _holds(self, number: int, given: Assignment) -> bool:
        job = self.jobs[given.job]
        return not job.is_over and job.holder == number and job.token == given.token

    def _report(self, number: int, update: JobUpdate, capacity: int) -> None:
        """Send a report that ends a run, and note in the model what it must have done."""
        given = self.workers[number].held.pop(update.job)
        counts, job = self._holds(number, given), self.jobs[update.job]
        if counts:
            is_good = update.result is not None and update.result == merged(job.spec).to_json()
            blames = update.reason is not None or (update.status is UpdateStatus.SUCCESS and not is_good)
            job.holder, job.is_over = None, is_good
            job.failures += blames and job.failures < FAILURES_MAX
        before = None if counts else Command.objects.filter(change_set__completed__0__job=update.job).count()
        self._poll(number, update, capacity=capacity)
        if not counts:
            assert Command.objects.filter(change_set__completed__0__job=update.job).count() == before

    def _draw_held(self, data: st.DataObject) -> tuple[int, str]:
        held = [(number, job) for number, worker in enumerate(self.workers) for job in worker.held]
        return data.draw(st.sampled_from(held))

    @staticmethod
    def _without_clock(dump: dict) -> dict:
        """A poll may advance time, even if its report is ignored."""
        kept = {name: rows for name, rows in dump.items() if name != "LogHead"}
        kept["Command"] = [row for row in dump["Command"] if row["kind"] != "advance_clock"]
        return kept

    @staticmethod
    def _is_work_left() -> bool:
        is_job_open = Job.objects.filter(state__in=["waiting", "leased"]).exists()
        return is_job_open or Block.objects.filter(state="queued").exists()

    def _finish_everything(self) -> None:
        """Run one honest worker until nothing is left to do: only parked jobs may remain."""
        for worker in self.workers:
            worker.held = {}
        for _ in range(300):
            worker = self.workers[0]
            done = [worker.success(job) for job in worker.held]
            for update in done:
                self.jobs[update.job].is_over = True
            worker.held = {}
            self._poll(0, *done, capacity=4)
            if not (worker.held or self._is_work_left()):
                break
            self.clock.advance(14)
        else:
            raise AssertionError("the schedule did not come to rest")
        self.every_segment_is_live_exactly_once()
        check_history()
        states = set(Block.objects.filter(state__in=LIVE_STATES).values_list("state", "owner_job__state"))
        assert states <= {("final", None), ("owned", "parked")}
        assert WorkerCredential.objects.count() == WORKERS


def test_the_schedule_agrees_with_a_dictionary(service: Service) -> None:
    machine = type("Machine", (ScheduleMachine,), {"clock": service.clock})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("tenant_count", [1, 3])
def test_the_same_work_ends_the_same_on_one_worker_or_many(service: Service, tenant_count: int) -> None:
    """One worker with four slots and four workers with one slot leave the same data live."""
    LevelPolicy.objects.update(blocks_max=2, age_seconds=20)
    datasets = [(f"tenant-{n}", "web") for n in range(tenant_count)]
    live = []
    for slots in ([4], [1, 1, 1, 1]):
        with rolled_back():
            service.add_segments(16, datasets=datasets)
            crew = [service.worker() for _ in slots]
            for _ in range(60):
                for worker, capacity in zip(crew, slots, strict=True):
                    done = [worker.success(job) for job in worker.held]
                    worker.held = {}
                    worker.poll(*done, capacity=capacity)
                service.clock.advance(5)
            check_invariants()
            rows = Block.objects.filter(state__in=LIVE_STATES).values_list("tenant__name", "level", "state")
            live.append(sorted(rows))
    assert live[0] == live[1]
    assert {row[1:] for row in live[0]} == {(3, "final")}
