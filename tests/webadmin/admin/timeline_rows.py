"""A table in the middle of its compaction, for pages: every state of everything."""

from __future__ import annotations

from typing import Any

from tests.webadmin.admin.rows import HOUR_MS, make_job, make_tenant
from webadmin.base.access.models import AuditEntry
from webadmin.base.database import dialect
from webadmin.lanes.tables.models import BadFile, Chunk, ChunkOverride, DataSource, Policy, Registration, Segment
from webadmin.lanes.tables.states import (
    ChunkOutcome,
    ChunkOverrideKind,
    ChunkStatus,
    RegistrationMode,
    SegmentState,
    TaskState,
)
from webadmin.lanes.tables.task_models import Manifest, Task, TaskChunk, TaskDependency

DAY_MS = 24 * HOUR_MS
MB = 1_000_000
DAYS = 60
VERSION = "2026-11-01T00:00:00.000Z"
ANALYSIS = {"fragmentation": 0.734, "oversize": 0.0, "alignment": 0.0, "recency": 0.5}


def make_table(name: str = "orders", tenant: str = "acme", **columns: Any) -> DataSource:
    """A table without chunks."""
    make_tenant(tenant)
    told = {"url": f"s3://lake/{tenant}/{name}", "time_column": "ts", "columns": [["ts", "timestamp"]]}
    source = DataSource.objects.create(tenant=tenant, name=name, **told | columns)
    Policy.objects.create(source=source)
    return source


def make_chunk(source: DataSource, start_ms: int, state: str = "stable", **columns: Any) -> Chunk:
    """A chunk of a day that was analysed."""
    numbers = {
        "segment_count": 2,
        "byte_count": 480 * MB,
        "largest_bytes": 260 * MB,
        "reason": f"because it is {state}",
    }
    told = {"is_dirty": False, "analysed_at_ms": dialect.clock_ms(), "version": VERSION, "analyses": 2, "changes": 1}
    columns = {"end_ms": start_ms + DAY_MS, "state": state} | numbers | told | columns
    return Chunk.objects.create(source=source, start_ms=start_ms, **columns)


def make_chunks(source: DataSource, first_ms: int, count: int) -> None:
    """Many chunks of a day, of all states."""
    states = ChunkStatus.values
    Chunk.objects.bulk_create(
        [
            Chunk(
                source=source,
                start_ms=first_ms + place * DAY_MS,
                end_ms=first_ms + (place + 1) * DAY_MS,
                state=states[place % len(states)],
                is_quarantined=place % 50 == 3,
                is_dirty=False,
                segment_count=place % 30,
                byte_count=place % 30 * MB,
                largest_bytes=place % 600 * MB,
                reason="24 segments of 114 MiB could be 1",
                analysis=ANALYSIS,
            )
            for place in range(count)
        ],
        batch_size=1000,
    )


def make_task(source: DataSource, start_ms: int, days: int, state: str = "waiting", **columns: Any) -> Task:
    """A task over whole days, whose job has this state, or which is over if it is a state of tasks."""
    over = {"finished_at_ms": dialect.clock_ms()} if state in TaskState.values else {"state": TaskState.OPEN}
    job = None if over.get("finished_at_ms") else make_job(f"tables-{source.id}-{start_ms}", state)
    told = {"state": state} | over if state in TaskState.values else over
    numbers = {"chunk_count": days, "segment_count": 24 * days, "byte_count": 120 * MB * days, "cost": 216 * MB * days}
    words = {"cause": "24 segments of 114 MiB could be 1", "fingerprint": "f", "command_index": 1}
    columns = {"end_ms": start_ms + days * DAY_MS, "priority": 442_000, "created_at_ms": dialect.clock_ms()} | columns
    return Task.objects.create(source=source, job=job, start_ms=start_ms, **numbers, **words, **told, **columns)


def fill_timeline() -> DataSource:
    """Make it all."""
    now_ms = dialect.clock_ms()
    today_ms = now_ms - now_ms % DAY_MS
    first_ms = today_ms - (DAYS - 1) * DAY_MS
    make_table("empty", "other")
    make_table("broken", refusal="two versions overlap: corrupt", is_paused=True, sequence=3, publish_error="no answer")
    source = make_table(sequence=12, published=10, partition_columns=["region"], analysed_at_ms=now_ms)
    Policy.objects.filter(source=source).update(bytes_per_day=2_000 * MB, sort_columns=["customer", "ts"])
    coming = Registration.objects.create(
        source=source,
        mode=RegistrationMode.APPEND,
        actor="loader",
        file_count=240,
        byte_count=1_200 * MB,
        row_count=10_000_000,
        sequence=12,
        at_ms=now_ms - 60_000,
    )
    chunks = _chunks(source, first_ms)
    _tasks(source, chunks, now_ms)
    _files(source, chunks, coming, now_ms)
    told = {"source": source, "actor": "ann", "created_at_ms": now_ms, "why": "audited: left as they are"}
    ChunkOverride.objects.create(kind=ChunkOverrideKind.NEVER, start_ms=first_ms, end_ms=first_ms + 5 * DAY_MS, **told)
    ended = {"ended_at_ms": now_ms, "ended_because": "it was done"}
    now = {"kind": ChunkOverrideKind.NOW, "start_ms": today_ms - 9 * DAY_MS, "end_ms": today_ms - 8 * DAY_MS}
    ChunkOverride.objects.create(**now, **told, **ended)
    ChunkOverride.objects.create(**now, **told | {"why": "a report is slow"})
    for number in range(2):
        seen = {"published_at_ms": now_ms, "deleted_at_ms": now_ms if not number else None}
        sizes = {"file_count": 90, "byte_count": 20_000 * MB, "row_count": 10**9, "written_at_ms": now_ms}
        path = f"_lithify/manifests/{number:012d}.json"
        Manifest.objects.create(source=source, sequence=number, path=path, sha256="0" * 64, **sizes, **seen)
    AuditEntry.objects.create(
        actor="ann",
        action="alter_table",
        target=str(source),
        detail={"before": {"hot_seconds": 0}, "after": {"hot_seconds": 3600}, "why": "late files come for an hour"},
    )
    return source


def _chunks(source: DataSource, first_ms: int) -> list[Chunk]:
    many = {
        "segment_count": 24,
        "byte_count": 120 * MB,
        "largest_bytes": 5 * MB,
        "priority": 442_000,
        "analysis": ANALYSIS,
    }
    kinds: list[dict[str, Any]] = [{"state": "stable"}] * DAYS
    kinds[0:5] = [{"state": "skipped", "reason": "it is excluded: audited"}] * 5
    kinds[8] = {"state": "empty", "segment_count": 0, "byte_count": 0, "largest_bytes": 0}
    kinds[12:16] = [{"note": "shares segments with adjacent chunks: misaligned"}] * 4
    kinds[20:27] = [{"state": "deferred"} | many] * 7
    failed = {"is_quarantined": True, "failures": 3, "quarantine_reason": "BadFile: footer that lies (3 runs)"}
    kinds[30] = {"state": "deferred"} | many | failed
    kinds[36:52] = [{"state": "unstable"} | many] * 16
    kinds[52] = {"state": "unstable", "segment_count": 1, "byte_count": 1_300 * MB, "largest_bytes": 1_300 * MB}
    kinds[-1] = {"state": "skipped", "reason": "it is in the hot window of the newest chunks"}
    kinds[-2] = {"state": "unstable", "is_dirty": True} | many
    return [make_chunk(source, first_ms + place * DAY_MS, **kind) for place, kind in enumerate(kinds)]


def _tasks(source: DataSource, chunks: list[Chunk], now_ms: int) -> None:
    states = ["leased", "blocked", "waiting", "blocked", "parked"]
    made = [
        make_task(source, chunks[36 + place * 3].start_ms, 3, state, colour=place % 2, is_over_limit=place == 4)
        for place, state in enumerate(states)
    ]
    for task, needed in ((made[1], made[0]), (made[1], made[2]), (made[3], made[2])):
        TaskDependency.objects.create(task=task, needs=needed)
    Chunk.objects.filter(source=source, start_ms__gte=made[0].start_ms, start_ms__lt=made[0].end_ms).update(
        task=made[0]
    )
    make_task(source, chunks[20].start_ms, 7, TaskState.SHED.value, ended_because="100 more urgent ones wait")
    make_task(source, chunks[30].start_ms, 1, TaskState.ENDED.value, ended_because="its chunk changed")
    done = make_task(source, chunks[54].start_ms, 3, TaskState.DONE.value, bytes_read=360 * MB, bytes_written=340 * MB)
    for number, outcome in enumerate(ChunkOutcome.values):
        TaskChunk.objects.create(
            task=done if outcome != ChunkOutcome.PLANNED else made[0],
            source=source,
            start_ms=chunks[54 + number].start_ms,
            end_ms=chunks[54 + number].end_ms,
            digest="d",
            segment_count=24,
            byte_count=120 * MB,
            is_open=outcome == ChunkOutcome.PLANNED,
            outcome=outcome,
            output_count=None if outcome == ChunkOutcome.PLANNED else 1,
            output_bytes=None if outcome == ChunkOutcome.PLANNED else 110 * MB,
            ended_at_ms=now_ms - 3_000,
        )
    for number in range(4):  # one chunk again and again
        again = make_task(source, chunks[50].start_ms, 1, TaskState.DONE.value)
        TaskChunk.objects.create(
            task=again,
            source=source,
            start_ms=chunks[50].start_ms,
            end_ms=chunks[50].end_ms,
            digest="d",
            segment_count=2,
            byte_count=121 * MB,
            is_open=False,
            outcome=ChunkOutcome.CARRIED_OVER,
            output_count=1,
            output_bytes=121 * MB,
            ended_at_ms=now_ms - number * DAY_MS,
        )


def _files(source: DataSource, chunks: list[Chunk], coming: Registration, now_ms: int) -> None:
    for number, state in enumerate(SegmentState):
        place = 36 + number
        segment = Segment.objects.create(
            source=source,
            state=state,
            path=f"dt=2026-11-{number:02d}/part-{number}.parquet",
            start_ms=chunks[place].start_ms,
            end_ms=chunks[place].end_ms,
            version=VERSION,
            partition=number,
            size_bytes=5 * MB,
            row_count=40_000,
            first_ms=chunks[place].start_ms,
            last_ms=chunks[place].end_ms - 1,
            facts={"row_groups": 1},
            registration=coming,
            added_sequence=12,
            created_at_ms=now_ms,
            reason="footer that lies" if state == SegmentState.QUARANTINED else "",
        )
    told = {"source": source, "size_bytes": 5 * MB, "at_ms": now_ms, "error_class": "FooterLies"}
    BadFile.objects.create(path=segment.path, segment=segment, message="row group 1 ends behind the file", **told)
    freed = {"released_at_ms": now_ms, "released_by": "ann", "release_why": "uploaded again"}
    BadFile.objects.create(path="dt=2026-10-01/old.parquet", message="magic is missing", **told, **freed)
