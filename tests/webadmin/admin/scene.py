"""A larger installation in a bad night, for pages that are looked at: several tenants, failures of many kinds, a build
that is broken, orders of operators, data that is being deleted."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from tests.webadmin.admin import rows
from tests.webadmin.admin.placement_rows import fill_placement
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.models import DeadLetter, Tombstone
from webadmin.progress.models import FlowMinute
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import LimitChange, Pause

TENANTS = ("acme", "umbrella", "initech", "a-tenant-with-a-rather-long-name-that-someone-chose-in-a-hurry", "zeta")
ERRORS = (
    ("ChecksumMismatch", "stored 1, found 2", "symbols", 4096),
    ("TruncatedObject", "the row group ends 17 bytes after the object", "profiles", 1 << 20),
    ("OutOfMemoryError", "a dataset of 612 MiB exceeds the task's 512 MiB", "", -1),
    ("ObjectNotFound", "no object blocks/3/umbrella/01KAJ5W5T0000000000000000A/block.bin", "", -1),
)
LETTERS = (
    ("bad_level", "level 200 is above 100"),
    ("object_not_found", "the block's own object is missing: segments/7/anonymous/01KAJ5W5T0000000000000000B"),
    ("differing_content", "a block of this id with other content was accepted before"),
)


def fill_night() -> rows.Filled:
    """Everything of ``rows.fill``, and much more of what goes wrong."""
    filled = rows.fill()
    _workers()
    _failed_jobs()
    _queues()
    _rules()
    _letters()
    _deletions()
    _flows()
    fill_placement()
    return filled


def _workers() -> None:
    for number in range(6):
        worker = rows.make_worker(f"node-eu-west-1-{number}", build="0.2.0-rc1" if number % 2 else "0.1.0", capacity=4)
        for position in range(number):
            rows.make_job(f"{number}{position:015x}-TacmeS{number}L1", "leased", worker=worker, tenant="acme", level=1)
    rows.make_worker("node-gone", last_poll_at=timezone.now() - timedelta(days=2), build="0.0.9")


def _failed_jobs() -> None:
    """Jobs that failed, one error class above all under one build: merging is broken in it."""
    at_ms = rows.now_ms()
    for number in range(24):
        name, message, section, offset = ERRORS[0 if number % 3 else number % len(ERRORS)]
        tenant = TENANTS[number % len(TENANTS)]
        reason = {"error_class": name, "message": message, "section": section, "offset": offset, "object": "o"}
        job = rows.make_job(
            f"{number:016x}-T{tenant[:9]}S{number % 4}L2",
            "parked",
            tenant=tenant,
            level=2,
            shard=number % 4,
            parked_kind=("evicted", "deferred")[number % 7 == 0],
            parked_reason=f"failed too often; the last time: {name}: {message}",
        )
        for _ in range(2):
            rows.make_block("owned", tenant=tenant, shard=job.shard, level=2, owner_job=job)
        worker = rows.make_worker("node-eu-west-1-1")
        for run in range(3):
            rows.make_attempt(
                job,
                "failed",
                job.created_command_index * 100 + run,
                worker=worker,
                build="0.2.0-rc1",
                ended_at_ms=at_ms - 1000 * number,
                reason=reason,
            )
    for number in range(8):
        job = rows.make_job(f"{number:016x}-TzetaS9L1", "done", tenant="zeta", level=1, shard=9)
        rows.make_attempt(job, "completed", job.token, build="0.1.0", ended_at_ms=job.finished_at_ms)
    for _, message, section, offset in ERRORS[:3]:
        rows.make_quarantine(message=message, section=section, offset=offset)
    Job.objects.filter(name__endswith="TacmeS5L1").update(failures=2)


def _queues() -> None:
    at_ms = rows.now_ms()
    for number, tenant in enumerate(TENANTS):
        for shard in range(3):
            rows.make_queue(
                tenant,
                shard,
                1 + number % 3,
                block_count=3 + 40 * number,
                byte_count=(3 + 40 * number) * 9_000_000,
                oldest_arrival_ms=at_ms - 3_600_000 * (number + 1),
                ready_at_ms=at_ms + (-600_000 if number % 2 else 45_000 * (shard + 1)),
            )


def _rules() -> None:
    at_ms, command = rows.now_ms(), rows.make_command(kind="operate", change_set={"action": "change_limit"})
    order = {
        "command_index": command.index,
        "actor": "operator@example.org",
        "why": "rc1 fails: calm it until it is back",
    }
    LimitChange.objects.create(
        name="failures_max",
        scope_kind="global",
        value=10,
        set_at_ms=at_ms,
        valid_until_ms=at_ms + rows.HOUR_MS,
        **order,
    )
    Pause.objects.create(scope_kind="level", scope_value="3", mode="pause", since_ms=at_ms - 60_000, **order)
    everybody = LevelPolicy.objects.filter(tenant="", level=1).values().get()
    LevelPolicy.objects.create(
        **everybody | {"id": None, "tenant": "acme", "blocks_max": 4, "partial_batch_bytes": 1 << 24}
    )


def _letters() -> None:
    at_ms = rows.now_ms()
    for number, (code, reason) in enumerate(LETTERS * 3):
        DeadLetter.objects.create(
            key=f"dlq/{number}/{TENANTS[number % 5]}/01KAJ5W5T00000000000000{number:03d}/meta.pb",
            shard=number,
            tenant=TENANTS[number % 5],
            ulid=f"01KAJ5W5T00000000000000{number:03d}",
            size_bytes=900,
            written_at_ms=at_ms - rows.HOUR_MS * number,
            state=("waiting", "waiting", "recovered", "discarded")[number % 4],
            attempts=number,
            first_attempt_ms=at_ms - rows.HOUR_MS,
            last_attempt_ms=at_ms - 15_000,
            code=code,
            reason=reason,
        )


def _deletions() -> None:
    for tenant in TENANTS:
        rows.make_request(tenant, service="", from_ms=rows.now_ms() - 24 * rows.HOUR_MS, until_ms=rows.now_ms())
    for number in range(12):
        block = rows.make_block("dropped", tenant=TENANTS[number % 5], level=3)
        Tombstone.objects.create(
            block=block,
            cause=("retention", "request")[number % 2],
            command_index=1,
            created_at_ms=rows.now_ms() - rows.HOUR_MS,
            eligible_at_ms=rows.now_ms() + (number - 6) * 100_000,
        )


def _flows() -> None:
    minute_ms = rows.now_ms() - rows.now_ms() % 60_000
    for number, tenant in enumerate(TENANTS):
        for lane, drained, jobs in (("profiles", 90 * number, 9 * number), ("dropped", 4 * number, 0)):
            FlowMinute.objects.create(
                minute_ms=minute_ms,
                lane=lane,
                tenant=tenant,
                shard=number,
                level=1 + number % 3,
                arrived_blocks=200 if jobs else 0,
                arrived_bytes=200 * 1_000_000 if jobs else 0,
                drained_blocks=drained,
                drained_bytes=drained * 1_000_000,
                completed_jobs=jobs,
                run_ms=jobs * 4_000,
            )
