"""A bucket of Prometheus blocks in the middle of its compaction, for pages: every state of everything."""

from __future__ import annotations

from engine.lanes.tsdb.plan.model import SlotState
from engine.schedule.model import JobState
from tests.webadmin.admin.rows import HOUR_MS, make_job
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import Block, BlockQuarantine, Bucket, BucketTenant, Folder, Group, OutboxStep, Part
from webadmin.lanes.tsdb.states import BlockState, GroupState, StepKind

RANGE_MS = 2 * HOUR_MS


def fill_tsdb() -> None:
    """Make it all."""
    now_ms = dialect.clock_ms()
    start_ms = now_ms - now_ms % RANGE_MS - 20 * RANGE_MS
    Bucket.objects.create(name="away", url="s3://away/x", layout="thanos", scan_error="no answer", is_paused=True)
    bucket = Bucket.objects.create(name="metrics", url="s3://metrics/blocks", layout="cortex", scanned_at_ms=now_ms)
    folder = Folder.objects.create(bucket=bucket, name="acme/", scanned_at_ms=now_ms)
    slots = [
        ["0@1", RANGE_MS, start_ms + place * RANGE_MS, [*SlotState][1 + place % 4].value, 3, place % 3, place % 2]
        for place in range(20)
    ]
    tenant = BucketTenant.objects.create(
        bucket=bucket, folder=folder, name="acme", waiting=12, compactions=5, slots=slots, planned_at_ms=now_ms
    )
    BucketTenant.objects.create(
        bucket=bucket,
        folder=folder,
        name="refused",
        refusal="another compactor, c-7, left a visit mark",
        refused_until_ms=now_ms + 600_000,
    )
    for position, state in enumerate(GroupState):
        ended = {} if state == GroupState.OPEN else {"finished_at_ms": now_ms, "ended_because": "its source is gone"}
        group = Group.objects.create(
            tenant=tenant,
            range_ms=RANGE_MS,
            start_ms=start_ms + position * RANGE_MS,
            partitions=2,
            level=2,
            is_vertical=True,
            cause="2 blocks overlap",
            state=state,
            block_count=2,
            byte_count=5_000_000,
            created_at_ms=now_ms,
            command_index=1,
            finding="each of its sources can be read alone" if state == GroupState.OPEN else "",
            **ended,
        )
        for number in range(2):
            job = make_job(f"tsdb-{position}-{number}", JobState.PARKED.value if number else JobState.WAITING.value)
            job.lane = "tsdb"
            job.save()
            result = _block(tenant, 100 + position * 2 + number, start_ms, BlockState.PENDING) if number else None
            Part.objects.create(group=group, partition=number, job=job, result=result, is_done=bool(number))
    open_group = Group.objects.filter(state=GroupState.OPEN).get()
    for number, state in enumerate(BlockState):
        block = _block(tenant, number, start_ms, state, open_group if state == BlockState.OWNED else None)
        OutboxStep.objects.create(
            tenant=tenant,
            block=block,
            kind=StepKind.values[number % 4],
            created_at_ms=now_ms,
            done_at_ms=now_ms if number % 2 else None,
            last_error="" if number % 2 else "StorageError: the bucket is read-only",
        )
    bad = _block(tenant, 50, start_ms, BlockState.LIVE)
    Block.objects.filter(id=bad.id).update(quarantined="ChecksumMismatch: chunks/000001 at 12")
    BlockQuarantine.objects.create(
        block=bad,
        error_class="ChecksumMismatch",
        message="stored 1, found 2",
        file="chunks/000001",
        offset=12,
        at_ms=now_ms,
        command_index=1,
    )


def _block(tenant: BucketTenant, number: int, start_ms: int, state: BlockState, group: Group | None = None) -> Block:
    return Block.objects.create(
        tenant=tenant,
        ulid=f"01HZ{number:022d}",
        state=state,
        min_time_ms=start_ms,
        max_time_ms=start_ms + RANGE_MS,
        level=1,
        series=100_000,
        samples=48_000_000,
        size_bytes=90_000_000,
        files=[{"name": "index", "size": 10, "crc32c": None}],
        meta=b"{}",
        group=group,
        found_at_ms=start_ms,
        visible_at_ms=start_ms,
        reason="merged by group 1" if state in (BlockState.SUPERSEDED, BlockState.MARKED) else "",
    )
