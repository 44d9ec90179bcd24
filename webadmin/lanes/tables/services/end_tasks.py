"""End tasks and cancel their jobs, inside an operation with a log entry whose caller holds the table's lock."""

from __future__ import annotations

from collections.abc import Sequence

from engine.lanes.tables.plan.reasons import ended_reason
from engine.schedule.model import HOLDING_STATES, AttemptOutcome
from webadmin.base.database import dialect
from webadmin.lanes.tables.column_sizes import REASON_MAX
from webadmin.lanes.tables.merge_specs import output_prefix
from webadmin.lanes.tables.models import Chunk
from webadmin.lanes.tables.states import ChunkOutcome, TaskState
from webadmin.lanes.tables.task_models import DiscardedOutput, Task, TaskChunk, TaskSegment
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.services.operation import Operation
from webadmin.schedule.services.return_job_blocks import end_jobs

SWEEP_DELAY_MS = 3_600_000
"""Delay before files left by a run are deleted: a worker that lost its lease may write a little longer."""


def end_tasks(run: Operation, tasks: Sequence[Task], state: TaskState, *, because: str) -> None:
    """End open tasks, cancel their jobs and free their chunks. A worker finds its lease revoked at its next poll."""
    ids = [task.id for task in tasks]
    jobs = Job.objects.filter(tables_task__in=ids, state__in=[one.value for one in HOLDING_STATES])
    end_jobs(run, list(jobs), because=because or "its task has ended")
    close_tasks(tasks, state, because=because)


def close_tasks(tasks: Sequence[Task], state: TaskState, *, because: str = "") -> None:
    """Record that tasks have ended, and what their runs may have left in the store."""
    ids, now_ms = [task.id for task in tasks], dialect.clock_ms()
    Task.objects.filter(id__in=ids, state=TaskState.OPEN).update(
        state=state, finished_at_ms=now_ms, ended_because=because[:REASON_MAX]
    )
    left = TaskChunk.objects.filter(task__in=ids, is_open=True)
    left.update(is_open=False, outcome=ChunkOutcome.GIVEN_UP, why=because[:REASON_MAX], ended_at_ms=now_ms)
    _release_chunks(ids, because)
    schedule_orphan_deletion(tasks, now_ms)


def _release_chunks(task_ids: Sequence[int], because: str) -> None:
    """Free the chunks of tasks; those still worth compacting are planned in the next controller cycle."""
    chunks = list(Chunk.objects.filter(task__in=task_ids))
    for chunk in chunks:
        chunk.task = None
        chunk.reason = ended_reason(chunk.reason, because or "it was given up")[:REASON_MAX]
    Chunk.objects.bulk_update(chunks, ["task", "reason"], batch_size=500)


def schedule_orphan_deletion(tasks: Sequence[Task], now_ms: int) -> None:
    """Schedule the deletion of files that runs without a result may have written, by prefix of output names."""
    ran = Attempt.objects.exclude(outcome=AttemptOutcome.COMPLETED).filter(job__tables_task__in=tasks)
    ids = set(ran.values_list("job__tables_task", flat=True))
    folders: dict[int, set[str]] = {task_id: set() for task_id in ids}
    planned = TaskSegment.objects.filter(task__in=ids, segment__is_tombstone=False)
    for task_id, folder in planned.values_list("task_id", "segment__folder").distinct():
        folders[task_id].add(folder)
    chunks = TaskChunk.objects.filter(task__in=ids).values_list("task_id", "source_id", "start_ms")
    DiscardedOutput.objects.bulk_create(
        DiscardedOutput(
            source_id=source_id,
            task_id=task_id,
            path=output_prefix(folder, start_ms),
            is_prefix=True,
            reason="what a run without a result may have left",
            created_at_ms=now_ms,
            delete_at_ms=now_ms + SWEEP_DELAY_MS,
        )
        for task_id, source_id, start_ms in chunks
        for folder in sorted(folders[task_id])
    )
