"""Whatever workers, leases and control tasks do, each block's data is in one place and each part has one result."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from engine.lanes.tsdb.jobs import TsdbMergeSpec
from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from engine.schedule.model import HOLDING_STATES, LIVE_STATES, JobState
from engine.storage import ObjectStore
from tests.log_replay.replay import apply_entry
from tests.log_replay.state import ReplayedState
from tests.webadmin.lanes.tsdb.conftest import CONTEXT
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, FakeNode, block_id, origins, put_block, visible
from tests.webadmin.service import Service
from webadmin.lanes.tsdb.models import Block, Bucket, Group, Part
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.states import PLANNABLE, BlockState, GroupState
from webadmin.schedule.models import Command, Job, Limits, LogHead
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.services.return_job_blocks import return_job_blocks

STEPS = 60
DAY_MS = 24 * HOUR_MS


def check_invariants() -> None:
    """Assert what must hold between any two steps."""
    assert LogHead.objects.get().live_job_count == Job.objects.filter(state__in=LIVE_STATES).count()
    for block in Block.objects.filter(state=BlockState.OWNED).select_related("group"):
        assert block.group is not None
        assert block.group.state == GroupState.OPEN
    for group in Group.objects.all():
        parts = list(Part.objects.filter(group=group).select_related("job", "result"))
        if group.state == GroupState.OPEN:
            assert Block.objects.filter(group=group, state=BlockState.OWNED).count() == group.block_count
            assert any(not part.is_done for part in parts)
        for part in parts:
            assert part.is_done == (part.job.state == JobState.DONE)
            if group.state == GroupState.DISSOLVED:
                assert part.job.state not in HOLDING_STATES
            if part.result is not None and group.state == GroupState.OPEN:
                assert part.result.state == BlockState.PENDING
    results = Counter(Part.objects.exclude(result=None).values_list("result_id", flat=True))
    assert all(count == 1 for count in results.values())


def check_data(store: ObjectStore, put: set[str]) -> None:
    """Assert that the rows that readers need, and what they see in the bucket, hold all data."""
    live = Block.objects.filter(state__in=PLANNABLE)
    told = {origin for block in live for origin in block.origins}
    unseen = put - set(Block.objects.values_list("ulid", flat=True))
    assert told | unseen == put
    assert origins(store, "acme/", visible(store, "acme/")) == put


def check_log() -> None:
    """Assert that the command log alone tells the state of every job."""
    state = ReplayedState()
    for entry in Command.objects.order_by("index").values("index", "kind", "format_version", "change_set"):
        apply_entry(state, **entry)
    last = {job.name: job.state for job in Job.objects.order_by("id")}
    assert {name: job.state.value for name, job in state.jobs.items()} == last


class Machine:
    """Random steps of three nodes and the control tasks on one tenant."""

    def __init__(self, service: Service, store: ObjectStore, random: Random) -> None:
        self.service, self.store, self.random = service, store, random
        self.nodes = [FakeNode(service.worker(), store) for _ in range(3)]
        self.held: list[tuple[FakeNode, TsdbMergeSpec, JobUpdate]] = []
        self.put: set[str] = set()

    def step(self) -> None:
        """Do one thing."""
        often = [self.take, self.finish]
        seldom = [self.add, self.scan, self.plan, self.fail, self.report_again, self.wait, self.write, self.operate]
        self.random.choice([*often, *often, *seldom])()

    def add(self) -> None:
        slot = self.random.randrange(14)
        ulid = block_id(len(self.put))
        put_block(self.store, "acme/", ulid, slot * 2 * HOUR_MS, (slot + 1) * 2 * HOUR_MS)
        self.put.add(ulid)

    def scan(self) -> None:
        rounds.scan_buckets(lambda url: self.store)

    def plan(self) -> None:
        rounds.plan_due(lambda url: self.store)

    def write(self) -> None:
        rounds.write_outboxes(lambda url: self.store)

    def take(self) -> None:
        node = self.random.choice(self.nodes)
        for spec in node.take(self.random.randint(1, 3)):
            self.held.append((node, spec, node.success(spec)))

    def finish(self) -> None:
        if self.held:
            node, _, update = self.random.choice(self.held)
            node.worker.poll(update, capacity=0)

    def report_again(self) -> None:
        """Report a result of long ago, or somebody else's."""
        if self.held:
            _, _, update = self.random.choice(self.held)
            self.random.choice(self.nodes).worker.poll(update, capacity=0)

    def fail(self) -> None:
        if self.held:
            node, _, update = self.random.choice(self.held)
            reason = FailureReason(error_class="ScratchFull", message="no room")
            told = JobUpdate(job=update.job, token=update.token, status=UpdateStatus.RELEASED, reason=reason)
            node.worker.poll(told, capacity=0)

    def wait(self) -> None:
        self.service.clock.advance(self.random.choice([1, 10, 20]))

    def operate(self) -> None:
        wanted = JobFilter(everything=True)
        self.random.choice([requeue, return_job_blocks])(wanted, context=CONTEXT)

    def settle(self) -> None:
        """Let everything come to its end."""
        for _ in range(60):
            self.service.clock.advance(20)
            self.scan()
            self.plan()
            requeue(JobFilter(everything=True), context=CONTEXT)
            done = sum(node.work_off() for node in self.nodes)
            self.write()
            if not done and not Group.objects.filter(state=GroupState.OPEN).exists():
                return
        raise AssertionError("it does not come to an end")


@pytest.mark.parametrize("seed", range(4))
def test_random_histories(service: Service, bucket: Bucket, store: ObjectStore, seed: int) -> None:
    Limits.objects.update(failures_max=2, queue_max=6)
    # A block has 10 series: groups of three become two parts.
    Bucket.objects.update(partition_series=25 if seed % 2 else 0, readers_know_partitions=True)
    machine = Machine(service, store, Random(seed))
    for _ in range(STEPS):
        machine.step()
        check_invariants()
    check_data(store, machine.put)
    check_log()
    machine.settle()
    check_invariants()
    check_data(store, machine.put)
    check_log()


def test_two_workers_on_one_job_leave_one_result(service: Service, bucket: Bucket, store: ObjectStore) -> None:
    for number in range(3):
        put_block(store, "acme/", block_id(number), 0, 2 * HOUR_MS)
    put_block(store, "acme/", block_id(3), 4 * HOUR_MS, 6 * HOUR_MS)
    slow, quick = (FakeNode(service.worker(), store) for _ in range(2))
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    [first] = slow.take()
    late = slow.success(first)
    service.clock.advance(16)
    assert quick.take() == []  # no command advances the time by more than a lease
    service.clock.advance(1)
    [second] = quick.take()
    assert (second.job, second.result_id() != first.result_id()) == (first.job, True)
    assert slow.worker.poll(late, capacity=0).leases == ()
    quick.finish(second)
    slow.worker.poll(late, capacity=0)
    rounds.write_outboxes(lambda url: store)
    assert visible(store, "acme/") == {second.result_id(), block_id(3)}
    assert Part.objects.get().result is not None


def test_results_of_parts_appear_together(service: Service, bucket: Bucket, store: ObjectStore) -> None:
    Bucket.objects.update(partition_series=10, readers_know_partitions=True)
    for number in range(3):
        put_block(store, "acme/", block_id(number), 0, 2 * HOUR_MS)
    put_block(store, "acme/", block_id(3), 4 * HOUR_MS, 6 * HOUR_MS)
    node = FakeNode(service.worker(), store)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    specs = node.take(8)
    assert len(specs) == specs[0].partitions == 4
    before = visible(store, "acme/")
    for spec in specs[:-1]:
        node.finish(spec)
        rounds.write_outboxes(lambda url: store)
        assert visible(store, "acme/") == before
    node.finish(specs[-1])
    rounds.write_outboxes(lambda url: store)
    assert visible(store, "acme/") == {*(spec.result_id() for spec in specs), block_id(3)}
