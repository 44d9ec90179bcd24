"""Rows for the admin's tests, made directly: every kind and state of thing that its pages show."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from engine.core import ulids
from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.formats.profile_block.model import BlockMeta
from webadmin.base.access.models import AuditEntry, RefusalCount, Tenant, WorkerCredential
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.ingest.models import PushCount, PushLimitChange
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import (
    Block,
    BlockLineage,
    Dataset,
    DatasetName,
    DeadLetter,
    DeleteRequest,
    DeletionCertificate,
    LabelSets,
    LegalHold,
    RetentionRule,
    Tombstone,
)
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.registration import PARTITION_MS
from webadmin.placement.models import RuleChange, RulesVersion
from webadmin.placement.services.decide_placement import change_limits, change_override
from webadmin.placement.services.instances import Registration, register_instance
from webadmin.progress.models import CountingMark, FlowMinute
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Attempt, Command, Job, LogHead, Worker
from webadmin.schedule.operation_models import IsolationStop, LimitChange, Pause

HOUR_MS = 3_600_000
LABELS = [
    ["__name__", "process_cpu"],
    ["service_name", "checkout"],
    ["__profile_type__", "process_cpu:cpu:nanoseconds"],
]


def now_ms() -> int:
    return read_time().now_ms


def make_tenant(name: str = "acme") -> Tenant:
    return Tenant.objects.get_or_create(name=name)[0]


def make_command(**columns: Any) -> Command:
    at_ms = columns.pop("at_ms", now_ms())
    defaults = {
        "command_time_ms": at_ms,
        "wall_time": timezone.now(),
        "kind": Command.Kind.UPDATE_PLAN,
        "actor": "worker-1",
        "change_set": {"assigned": []},
    }
    command = Command.objects.create(**defaults | columns)
    LogHead.objects.update(last_index=command.index, command_time_ms=at_ms, clock_ms=dialect.clock_ms())
    return command


def make_worker(name: str = "node-a", **columns: Any) -> Worker:
    credential, _ = WorkerCredential.objects.get_or_create(
        name=f"key of {name}",
        defaults={
            "key_id": hashlib.sha256(name.encode()).hexdigest()[:12],
            "secret_hash": "5ec2e7",
            "scopes": ["jobs:poll"],
        },
    )
    defaults = {"credential": credential, "build": "0.1.0", "capacity": 2, "last_poll_at": timezone.now()}
    return Worker.objects.get_or_create(name=name, defaults=defaults | columns)[0]


def make_queue(tenant: str = "", shard: int = 1, level: int = 0, **columns: Any) -> LevelQueue:
    at_ms = now_ms()
    defaults = {
        "block_count": 7,
        "byte_count": 7 * 35_000,
        "oldest_arrival_ms": at_ms - 12_000,
        "newest_arrival_ms": at_ms - 1000,
        "ready_at_ms": at_ms + 24_000,
    }
    key = {"lane": "profiles", "tenant": tenant, "shard": shard, "level": level}
    return LevelQueue.objects.get_or_create(**key, defaults=defaults | columns)[0]


def make_job(name: str, state: str = "waiting", **columns: Any) -> Job:
    at_ms = now_ms()
    command = make_command(change_set={"created": [{"job": name, "sources": ["a", "b"]}], "assigned": []})
    defaults: dict[str, Any] = {
        "name": name,
        "lane": "profiles",
        "tenant": "",
        "shard": 1,
        "level": 0,
        "state": state,
        "added_at_ms": at_ms - 90_000,
        "created_command_index": command.index,
        "source_count": 20,
        "source_bytes": 700_000,
        "spec": {"job": name, "kind": "profiles", "sources": [{"id": "x", "metadata": "Q" * 400}]},
    }
    if state == "leased":
        defaults |= {
            "token": command.index,
            "worker": make_worker(),
            "lease_expires_ms": at_ms + 9_000,
            "assigned_at_ms": at_ms - 6_000,
            "progress": {"done": 300_000, "total": 700_000, "phase": "symbols"},
        }
    if state == "done":
        defaults |= {
            "token": command.index,
            "worker": make_worker(),
            "assigned_at_ms": at_ms - 6_000,
            "finished_at_ms": at_ms - 1_000,
            "finished_command_index": make_command(change_set={"completed": [{"job": name}]}).index,
            "result": {"kind": "profiles", "rows_read": 9_000},
        }
    if state == "parked":
        defaults |= {"failures": 3, "parked_reason": "failed too often; the last time: ChecksumMismatch: symbols"}
    return Job.objects.create(**defaults | columns)


def make_attempt(job: Job, outcome: str, token: int, **columns: Any) -> Attempt:
    defaults = {"worker": make_worker(), "assigned_at_ms": now_ms() - 6_000}
    return Attempt.objects.create(job=job, token=token, outcome=outcome, **defaults | columns)


_made = 0


def make_block(state: str = "queued", *, tenant: str = "", shard: int = 1, level: int = 0, **columns: Any) -> Block:
    """A block in any state, with the rows that its state asks for."""
    global _made
    _made += 1
    at_ms = columns.pop("created_at_ms", now_ms() - 60_000)
    ulid = columns.pop("ulid", ulids.make(at_ms, _made.to_bytes(10, "big")))
    strings = ("", tenant, "recorder 0.1")
    meta = BlockMeta(
        id=ulid,
        tenant=tenant,
        shard=shard,
        compaction_level=level,
        min_time_ms=at_ms - 15_000,
        max_time_ms=at_ms,
        datasets=(),
        string_table=strings,
        created_by="recorder 0.1",
    )
    defaults: dict[str, Any] = {
        "tenant": make_tenant(tenant) if tenant else None,
        "partition_start_ms": at_ms - at_ms % PARTITION_MS,
        "created_at_ms": at_ms,
        "min_time_ms": at_ms - 15_000,
        "max_time_ms": at_ms,
        "size_bytes": 35_000 * 8**level,
        "crc32c": 0x1EAF,
        "object_key": block_key(shard, tenant, level, ulid),
        "metadata": encode_metadata(meta),
        "dataset_count": 2,
        "added_command_index": 1,
        "arrived_at_ms": at_ms + 500,
    }
    if state == "queued":
        defaults["queue"] = make_queue(tenant, shard, level)
    if state == "parked":
        defaults["parked_reason"] = "damaged: symbols at offset 4096"
    if state in ("replaced", "dropped", "deleted"):
        defaults["removed_command_index"] = 2
    return Block.objects.create(ulid=ulid, state=state, shard=shard, level=level, **defaults | columns)


def make_tombstone(block: Block, **columns: Any) -> Tombstone:
    defaults: dict[str, Any] = {"command_index": 1, "created_at_ms": now_ms() - HOUR_MS, "eligible_at_ms": now_ms()}
    return Tombstone.objects.create(block=block, **defaults | columns)


def make_datasets(block: Block, *services: str, tenant: str = "acme") -> None:
    digest = hashlib.sha256(json.dumps(LABELS).encode()).hexdigest()
    label_sets, _ = LabelSets.objects.get_or_create(digest=digest, defaults={"label_sets": [LABELS, LABELS[:2]]})
    for position, service in enumerate(services):
        Dataset.objects.create(
            block=block,
            tenant=make_tenant(tenant),
            name=DatasetName.objects.get_or_create(name=service)[0],
            label_sets=label_sets,
            position=position,
            format=0,
            min_time_ms=block.min_time_ms,
            max_time_ms=block.max_time_ms,
            size_bytes=block.size_bytes // len(services),
        )


def link(result: Block, job: Job, *sources: Block) -> None:
    BlockLineage.objects.bulk_create([BlockLineage(result=result, source=source, job=job) for source in sources])


def make_quarantine(block: Block | None = None, **columns: Any) -> Quarantine:
    """A damaged block in a parked job of its own."""
    number = Quarantine.objects.count()
    job = make_job(f"{number:016x}-quarantined", "parked", parked_kind="quarantined", source_count=1)
    defaults = {
        "block": block or make_block("owned", owner_job=job),
        "job": job,
        "cause": Quarantine.Cause.DAMAGED,
        "error_class": "ChecksumMismatch",
        "message": "stored 1, found 2",
        "section": "symbols",
        "offset": 4096,
        "build": "0.1.0",
        "attempts": 2,
        "at_ms": now_ms() - 30_000,
        "command_index": job.created_command_index,
    }
    return Quarantine.objects.create(**defaults | columns)


def make_stop(**columns: Any) -> IsolationStop:
    """A stop of quarantine that waits for a decision."""
    defaults = {"lane": "profiles", "at_ms": now_ms() - 20_000, "bad_sources": 7, "merged_sources": 12}
    reason = "7 of 19 recent sources cannot be merged (7 Truncated)"
    return IsolationStop.objects.create(**defaults | {"reason": reason, "command_index": make_command().pk} | columns)


def make_request(tenant: str = "acme", **columns: Any) -> DeleteRequest:
    """A delete request that is under way."""
    at_ms, command = now_ms(), make_command(kind=Command.Kind.OPERATE, change_set={"action": "request_deletion"})
    defaults = {
        "tenant": make_tenant(tenant),
        "service": "checkout",
        "command_index": command.index,
        "requested_at_ms": at_ms - HOUR_MS,
        "deadline_at_ms": at_ms + 23 * HOUR_MS,
        "hidden_blocks": 3,
        "hidden_datasets": 5,
        "actor": "operator",
        "why": "a customer asked",
    }
    return DeleteRequest.objects.create(**defaults | columns)


def make_deletion() -> None:
    """Rules of retention, holds, requests in every state, an object that the store would not delete."""
    who = {"actor": "operator", "why": "as the contract says"}
    RetentionRule.objects.create(tenant="acme", keep_days=7, **who)
    RetentionRule.objects.create(tenant="umbrella", keep_days=0, **who)
    AuditEntry.objects.create(
        actor="operator",
        action="set_retention",
        target="acme",
        detail={"before": None, "after": 7, "why": "as the contract says"},
    )
    LegalHold.objects.create(tenant="initech", **who)
    LegalHold.objects.create(tenant="acme", ended_at=timezone.now(), ended_by="counsel", **who)
    make_request()
    make_request(service="", selector='{pod="a-1"}', until_ms=now_ms(), deadline_at_ms=now_ms() - 2 * HOUR_MS)
    done = make_request(state="done", service="billing")
    DeletionCertificate.objects.create(
        request=done,
        command_index=make_command(kind=Command.Kind.OPERATE, change_set={"action": "certify_deletion"}).index,
        issued_at_ms=now_ms(),
        detail={"request": done.command_index, "hidden_blocks": 3, "hidden_datasets": 5, "is_late": False},
    )
    make_tombstone(
        make_block("dropped", tenant="acme", level=2),
        cause="retention",
        eligible_at_ms=now_ms() - HOUR_MS // 2,
        dispatched_at_ms=now_ms() - 60_000,
        retry_at_ms=now_ms() + 60_000,
        attempts=4,
        last_error="503 Slow Down",
    )


def make_operations() -> None:
    """What operators set, and what was set apart."""
    at_ms, command = now_ms(), make_command(kind=Command.Kind.OPERATE, change_set={"action": "pause"})
    order = {"command_index": command.index, "actor": "operator", "why": "a noisy tenant"}
    LimitChange.objects.create(
        name="failures_max",
        scope_kind="tenant",
        scope_value="acme",
        value=10,
        set_at_ms=at_ms,
        valid_until_ms=at_ms + HOUR_MS,
        **order,
    )
    LimitChange.objects.create(name="queue_max", scope_kind="global", value=None, set_at_ms=at_ms, **order)
    Pause.objects.create(scope_kind="tenant", scope_value="umbrella", mode="drain", since_ms=at_ms - 5000, **order)
    over = {"ended_at_ms": at_ms - 1000, "ended_by": "operator"}
    Pause.objects.create(scope_kind="global", mode="pause", since_ms=at_ms - 9000, **over, **order)
    make_quarantine()
    make_stop()
    make_quarantine(cause="missing", section="", offset=-1, released_at_ms=at_ms, released_by="operator")
    DeadLetter.objects.create(
        key="dlq/1/anonymous/01KAJ5W5T0000000000000000A/meta.pb",
        shard=1,
        ulid="01KAJ5W5T0000000000000000A",
        size_bytes=900,
        written_at_ms=at_ms - HOUR_MS,
        attempts=3,
        first_attempt_ms=at_ms - HOUR_MS + 15_000,
        last_attempt_ms=at_ms - 15_000,
        code="bad_level",
        reason="level 200 is above 100",
    )
    PushCount.objects.create(tenant="acme", outcome="accepted", count=812, bytes=9 << 20, last_at_ms=at_ms - 2_000)
    PushCount.objects.create(
        tenant="acme", outcome="rate_limited", count=3, last_at_ms=at_ms - 9_000, last_message="tenant acme sends more"
    )
    for value in (None, 9 << 20):
        PushLimitChange.objects.create(
            tenant="acme", name="bytes_per_second", value=value, is_superseded=value is None, actor="ann", why="growth"
        )
    RefusalCount.objects.create(
        actor="writer-1", code="bad_level", count=7, last_at_ms=at_ms - 15_000, last_reason="level 200 is above 100"
    )
    CountingMark.objects.update_or_create(
        id=1, defaults={"counting_since_ms": at_ms - 600_000, "counted_at_ms": at_ms - 4000, "last_completed_ms": at_ms}
    )
    for tenant, level, arrived, drained in (("", 0, 600, 580), ("acme", 1, 30, 40)):
        FlowMinute.objects.create(
            minute_ms=at_ms - at_ms % 60_000,
            lane="profiles",
            tenant=tenant,
            shard=1,
            level=level,
            arrived_blocks=arrived,
            arrived_bytes=arrived * 35_000,
            drained_blocks=drained,
            drained_bytes=drained * 35_000,
            completed_jobs=drained // 20,
            run_ms=drained * 150,
        )


def make_placement() -> None:
    """Two writers, rules that changed, and what operators decided."""
    for name in ("writer-a", "writer-b"):
        register_instance(Registration(name=name, address=f"http://{name}:4041", zone="east", build="0.1.0"))
    context = ActionContext(actor="operator", why="a launch")
    change_limits(tenant="acme", values={"dataset_shards_max": 8}, context=context)
    change_override(tenant="acme", dataset="checkout", values={"dataset_shards": 2}, context=context)
    at_ms, rule = now_ms(), {"tenant_shards": 2, "dataset_shards": 2, "load_balancing": "fingerprint", "shards": []}
    RulesVersion.objects.create(
        version=7, at_ms=at_ms, reason="acme/billing: it is new", dataset_count=1, change_count=1, usage_bytes=9 << 10
    )
    RuleChange.objects.create(
        version=7, at_ms=at_ms, tenant="acme", dataset="billing", after=rule, reason="it is new and writes 9 KiB/s"
    )


@dataclass(frozen=True)
class Filled:
    """What the pages of a filled database are tried on."""

    final: Block
    middle: Block
    segment: Block
    leased: Job
    failed: Job
    done: Job
    queue: LevelQueue


def fill() -> Filled:
    """A small installation in the middle of its work, with everything that can be seen at once."""
    make_tenant("umbrella")
    make_worker("node-silent", last_poll_at=timezone.now() - timedelta(hours=3))
    make_command(kind=Command.Kind.ADD_BLOCKS, actor="writer-1", change_set={"added": [{"shard": 1, "id": "X"}] * 3})
    done = make_job("0000000000000001-TaS1L0", "done")
    segments = [make_block("replaced", owner_job=done) for _ in range(20)]
    make_datasets(segments[0], "checkout", "billing", "search", "")
    middle = make_block("replaced", tenant="acme", level=1, owner_job=done)
    link(middle, done, *segments)
    final = make_block("final", tenant="acme", level=3)
    link(final, done, middle, make_block("replaced", tenant="acme", level=2, owner_job=done))
    make_datasets(final, "checkout", "billing")
    at_ms = now_ms()
    for position, segment in enumerate(segments[:3]):
        gone = {"deleted_at_ms": at_ms} if position == 0 else {}
        Tombstone.objects.create(
            block=segment,
            job=done,
            command_index=done.finished_command_index,
            created_at_ms=at_ms - 60_000,
            eligible_at_ms=at_ms + 600_000 * (position - 1),
            **gone,
        )
    leased = make_job("0000000000000002-TaS1L0", "leased", failures=1)
    for _ in range(6):
        make_block("owned", owner_job=leased)
    expired = make_job("0000000000000003-TacmeS1L1", "leased", tenant="acme", level=1)
    Job.objects.filter(id=expired.id).update(lease_expires_ms=at_ms - 2_000)
    make_job("0000000000000004-TaS2L0", "waiting", shard=2)
    failed = make_job("0000000000000005-TacmeS2L2", "parked", tenant="acme", level=2, shard=2)
    reason = {
        "error_class": "ChecksumMismatch",
        "message": "symbols",
        "object": "blocks/2/acme/X",
        "section": "symbols",
        "offset": 4096,
    }
    returned = make_command(change_set={"returned": [{"job": failed.name, "failures": 3}]})
    make_attempt(failed, "failed", returned.index - 1, ended_at_ms=returned.command_time_ms, reason=reason)
    make_attempt(
        leased, "expired", leased.created_command_index - 1, assigned_at_ms=at_ms - 25_000, ended_at_ms=at_ms - 10_000
    )
    make_attempt(leased, "running", leased.token)
    make_attempt(done, "completed", done.token, ended_at_ms=done.finished_at_ms)
    queued = make_block()
    make_block("parked")
    make_queue("acme", 1, 1, ready_at_ms=at_ms - 4_000, block_count=10, oldest_arrival_ms=at_ms - 700_000)
    make_queue(
        "umbrella", 2, 2, block_count=0, byte_count=0, oldest_arrival_ms=None, newest_arrival_ms=None, ready_at_ms=None
    )
    make_operations()
    make_deletion()
    make_placement()
    AuditEntry.objects.create(
        actor="admin", action="issue_worker_credential", target="node-a", detail={"scopes": ["jobs:poll"]}
    )
    return Filled(
        final=final, middle=middle, segment=segments[0], leased=leased, failed=failed, done=done, queue=queued.queue
    )
