"""Drives the schedule as its workers and writers do, and checks its invariants after each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, Field, ForeignKey, Model, Sum

from engine.formats.profile_block.model import BlockMeta
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from engine.protocol.messages import (
    Assignment,
    FailureReason,
    JobUpdate,
    PollRequest,
    PollResponse,
    Progress,
    UpdateStatus,
)
from engine.protocol.wire import request_from_wire, request_to_wire, response_from_wire, response_to_wire
from engine.schedule.model import HOLDING_STATES, LIVE_STATES, JobState
from tests.block_factory import block_meta, merged, segment_ids
from tests.database import ManualClock
from webadmin.base.access.models import WorkerCredential
from webadmin.base.access.services import issue_worker_credential
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import AcceptedId, Block, BlockLineage, Dataset, Tombstone
from webadmin.lanes.profiles.registration import BlockRegistration
from webadmin.lanes.profiles.services import AddOutcome, add_blocks
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.models import Attempt, Command, Job, LogHead
from webadmin.schedule.services import poll

REASON = FailureReason(error_class="ChecksumMismatch", message="stored 1, found 2", object="a/block.bin", offset=7)


@dataclass
class FakeWorker:
    """A compactor node that merges nothing but says the right things, or the wrong ones."""

    service: Service
    name: str
    credential: WorkerCredential
    held: dict[str, Assignment] = field(default_factory=dict)
    build: str = "test"

    def poll(self, *updates: JobUpdate, capacity: int = 1) -> PollResponse:
        """Poll once, through the wire form; remember what was assigned."""
        request = PollRequest(worker=self.name, build=self.build, capacity=capacity, updates=updates)
        request = request_from_wire(request_to_wire(request))
        answer = poll(request=request, credential=self.credential, at=self.service.people_time())
        answer = response_from_wire(response_to_wire(answer))
        assert len(answer.assignments) <= capacity
        self.held |= {assignment.job: assignment for assignment in answer.assignments}
        return answer

    def take(self, capacity: int = 1) -> list[ProfileMergeSpec]:
        """Poll for work only."""
        return [ProfileMergeSpec.from_json(given.spec) for given in self.poll(capacity=capacity).assignments]

    def running(self, job: str, progress: Progress | None = None) -> JobUpdate:
        return JobUpdate(job=job, token=self.held[job].token, status=UpdateStatus.IN_PROGRESS, progress=progress)

    def success(self, job: str, result: ProfileMergeResult | None = None) -> JobUpdate:
        result = result or merged(ProfileMergeSpec.from_json(self.held[job].spec))
        return JobUpdate(job=job, token=self.held[job].token, status=UpdateStatus.SUCCESS, result=result.to_json())

    def released(self, job: str, reason: FailureReason | None = None) -> JobUpdate:
        return JobUpdate(job=job, token=self.held[job].token, status=UpdateStatus.RELEASED, reason=reason)


class Service:
    """The schedule under test."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.worker_count = 0
        self.segment_count = 0

    def people_time(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_ms / 1000, UTC)

    def worker(self, name: str | None = None, credential: WorkerCredential | None = None) -> FakeWorker:
        self.worker_count += 1
        name = name or f"worker-{self.worker_count}"
        return FakeWorker(self, name, credential or issue_worker_credential(name=name, actor="test").credential)

    def add(self, *metas: BlockMeta, **options: Any) -> AddOutcome:
        return add_blocks([BlockRegistration.of(meta) for meta in metas], actor="writer:test", **options)

    def add_segments(
        self, count: int, *, shard: int = 1, datasets: Iterable[tuple[str, str]] = (("acme", "web"),)
    ) -> list[str]:
        """Register fresh segments created now, half a second apart."""
        ids = segment_ids(self.clock.now_ms, count, first=self.segment_count)
        self.segment_count += count
        outcome = self.add(*(block_meta(block_id, shard=shard, datasets=datasets) for block_id in ids))
        assert list(outcome.accepted) == list(ids)
        return list(ids)

    def states(self) -> Counter[str]:
        """Return how many blocks are in which state."""
        return Counter(Block.objects.values_list("state", flat=True))

    def dump(self) -> dict[str, list[dict[str, Any]]]:
        """Return everything the schedule and the index decide on."""
        models = (Block, LevelQueue, Job, Attempt, AcceptedId, BlockLineage, Tombstone, Command, LogHead)
        return {model.__name__: list(model.objects.order_by("pk").values()) for model in models}


@contextmanager
def rolled_back() -> Iterator[None]:
    """Undo everything at the end, inside a test that is itself rolled back; services may commit as usual."""
    frame = transaction.atomic()
    frame._from_testcase = True  # as Django's own test case does, or durable transactions would refuse to nest
    with frame:
        try:
            yield
        finally:
            transaction.set_rollback(True)


def relabelled(update: JobUpdate, **changes: Any) -> JobUpdate:
    """Return the report with other values."""
    return replace(update, **changes)


def check_invariants() -> None:
    """Assert what must hold between any two statements of anyone (sheet, section 15: 1, 2, 6, 11, 13, 14, 19, 25)."""
    head = LogHead.objects.get()
    assert head.live_job_count == Job.objects.filter(state__in=LIVE_STATES).count()
    _check_queues()
    holding = {job.id: job for job in Job.objects.filter(state__in=HOLDING_STATES)}
    owned = Counter(Block.objects.filter(state=BlockState.OWNED).values_list("owner_job_id", flat=True))
    assert owned == {job.id: job.source_count for job in holding.values()}, "a held job owns exactly its sources"
    for block in Block.objects.filter(state=BlockState.OWNED).select_related("owner_job", "tenant"):
        job = block.owner_job
        tenant = block.tenant.name if block.tenant else ""
        shard = job.spec.get("source_shards", {}).get(block.ulid, job.shard)
        assert (job.tenant, shard, job.level) == (tenant, block.shard, block.level)
    replaced = Block.objects.filter(state__in=[BlockState.REPLACED, BlockState.DROPPED])
    assert replaced.count() == Tombstone.objects.filter(deleted_at_ms=None).count()
    assert not replaced.filter(tombstone=None).exists()
    assert not Block.objects.filter(level__gte=3, state=BlockState.QUEUED).exists()
    assert Block.objects.count() == AcceptedId.objects.count()
    tokens = list(Attempt.objects.filter(outcome="running").values_list("job_id", "token"))
    leased = list(Job.objects.filter(state=JobState.LEASED).values_list("id", "token"))
    assert sorted(tokens) == sorted(leased), "exactly the leased jobs have a running attempt"
    assert (Command.objects.order_by("-index").values_list("index", flat=True).first() or 0) >= head.last_index
    _check_references()


def _check_references() -> None:
    with connection.cursor() as cursor:
        cursor.execute(_LOST)
        assert not cursor.fetchall(), "what the index refers to is there: the database does not look (decision 0022)"


def _lost(model: type[Model], own: Field[Any, Any]) -> str:
    """Return the question which references of this kind lead nowhere."""
    table, other = model._meta.db_table, own.related_model._meta.db_table
    found = f"SELECT 1 FROM {other} o WHERE o.id = r.{own.column}"
    return (
        f"SELECT '{table}.{own.column}', r.id FROM {table} r WHERE r.{own.column} IS NOT NULL AND NOT EXISTS ({found})"
    )


_LOST = " UNION ALL ".join(
    _lost(model, own)
    for model in (Block, BlockLineage, Dataset, Tombstone)
    for own in model._meta.concrete_fields
    if isinstance(own, ForeignKey)
)


def _check_queues() -> None:
    queued = Block.objects.filter(state=BlockState.QUEUED).values("queue_id")
    sums = {row["queue_id"]: row for row in queued.annotate(blocks=Count("id"), bytes=Sum("size_bytes")).order_by()}
    for queue in LevelQueue.objects.all():
        row = sums.get(queue.id, {"blocks": 0, "bytes": 0})
        assert (queue.block_count, queue.byte_count) == (row["blocks"], row["bytes"]), str(queue)
        oldest = Block.objects.queued_in(queue.id).first()
        assert queue.oldest_arrival_ms == (oldest.arrived_at_ms if oldest else None)
