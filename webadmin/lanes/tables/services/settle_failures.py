"""Examine tasks whose jobs fail: quarantine unreadable files, so that the rest of the table stays readable.

If all files can be read, a failure is counted for the chunks, which are quarantined after several.

Only what is read here decides, not the worker's report: a worker may be faulty.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from django.db.models import F, Q

from engine.core.errors import BadObject
from engine.formats.parquet.footers import read_footer
from engine.formats.parquet.store_file import open_object
from engine.formats.parquet.times import time_bounds
from engine.lanes.tables.jobs import KIND
from engine.lanes.tables.plain.facts import read_facts
from engine.lanes.tables.plan.granularity import Granularity
from engine.schedule.model import JobState, ParkedKind
from engine.storage import ObjectNotFound, ObjectStore, StorageError
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tables.column_sizes import REASON_MAX
from webadmin.lanes.tables.models import BadFile, Chunk, DataSource, Policy, Segment
from webadmin.lanes.tables.policies import granularity_of, mark_dirty
from webadmin.lanes.tables.services.end_tasks import end_tasks
from webadmin.lanes.tables.states import ChunkStatus, SegmentState, TaskState
from webadmin.lanes.tables.task_models import Task, TaskChunk
from webadmin.schedule.isolation_stops import FoundBad, stopped_places
from webadmin.schedule.models import Attempt
from webadmin.schedule.register import BAD_OUTCOMES, with_last_error
from webadmin.schedule.services.operation import operation
from webadmin.schedule.services.stop_isolation import isolation_stop_reason

log = logging.getLogger(__name__)

ACTOR = "control:tables"
TASKS_MAX = 50
"""Maximum number of failing tasks that one round examines."""
FAILED_TASKS_MAX = 2
"""Consecutive failed tasks of a chunk, each after all its runs, until the chunk is quarantined."""
ALL_READABLE = "each of its files can be read alone: the merge itself fails, or the worker"


@dataclass(slots=True)
class FailureReport:
    """Files quarantined with their errors, tasks given up, chunks quarantined, and files that could not be read.

    ``stopped`` is, by table, why no file is quarantined until an operator decides.
    """

    quarantined: dict[str, str] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)
    not_examined: int = 0
    unread: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)


def failing_tasks() -> list[Task]:
    """Return open tasks without a lease whose last run failed and was not examined yet.

    Leaves out tables for which quarantine is stopped until an operator decides.
    """
    tasks = Task.objects.filter(state=TaskState.OPEN, verified_token__lt=F("job__token"))
    for place in stopped_places(KIND):
        tasks = tasks.exclude(of_place(place))
    evicted = Q(job__state=JobState.PARKED) & Q(job__parked_kind__in=["", ParkedKind.EVICTED])
    waits = Q(job__state=JobState.WAITING, job__failures__gt=0)
    return list(tasks.filter(evicted | waits).select_related("job", "source").order_by("id")[:TASKS_MAX])


def settle_failure(
    task: Task, store: ObjectStore, report: FailureReport, *, context: ActionContext | None = None
) -> None:
    """Read the files that a task may fail on, and settle the failure. Idempotent and safe to run concurrently."""
    context = context or ActionContext(actor=ACTOR, why="a job failed on it")
    assert task.job is not None, "an open task has a job"
    is_over = task.job.state == JobState.PARKED
    bad: list[tuple[Segment, BadObject]] = []
    is_complete = True
    for segment in _suspects(task, is_over=is_over):
        try:
            error = read_alone(segment, store)
        except StorageError as trouble:  # the file itself may be readable
            report.unread[segment.path] = str(trouble)
            is_complete = False
            continue
        if error is not None:
            bad.append((segment, error))
    if bad:
        found = [FoundBad(type(error).__name__, segment.created_at_ms) for segment, error in bad]
        if why := isolation_stop_reason(KIND, str(task.source), found, context):
            report.stopped[str(task.source)] = why
            return
        _keep_out(task, bad, context)
        report.quarantined |= {segment.path: str(error) for segment, error in bad}
    elif is_over and is_complete:
        report.not_examined += _fail(task, context)
        report.failed.append(task.id)
    elif is_complete:
        Task.objects.filter(id=task.id).update(verified_token=task.job.token, finding=ALL_READABLE)


def _suspects(task: Task, *, is_over: bool) -> list[Segment]:
    """Return the files to read: the one named in the last error, or all of a job without runs left."""
    last = Attempt.objects.filter(job=task.job_id, outcome__in=BAD_OUTCOMES).order_by("-token").first()
    named = str(((last.reason if last else None) or {}).get("object", ""))
    files = list(
        Segment.objects.filter(planned_in__task=task, is_tombstone=False, state=SegmentState.VISIBLE).order_by("id")
    )
    files.sort(key=lambda file: file.path not in named)
    return files if is_over else [file for file in files if file.path in named]


def read_alone(segment: Segment, store: ObjectStore) -> BadObject | None:
    """Read all of a file; return the error found, if any. Raises StorageError if the store does not answer."""
    source = segment.source
    try:
        read_facts(
            store,
            segment.path,
            time_column=source.time_column,
            time_unit=source.time_unit,
            size=segment.size_bytes,
        )
        footer = read_footer(store, segment.path, segment.size_bytes)
        if footer.rows != segment.row_count:
            return BadObject(
                "footer", -1, f"it has {footer.rows} rows, {segment.row_count} were registered", segment.path
            )
        return _read_rows(segment, store)
    except ObjectNotFound as error:
        return BadObject("file", -1, f"it is gone: {error}", segment.path)
    except BadObject as error:
        return error


def _read_rows(segment: Segment, store: ObjectStore) -> BadObject | None:
    group, column, unit = 0, segment.source.time_column, segment.source.time_unit
    try:
        file = pq.ParquetFile(open_object(store, segment.path, segment.size_bytes), page_checksum_verification=True)
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(row_groups=[group], use_threads=False):
                if why := _times_beyond(segment, time_bounds(batch.column(column), unit)):
                    return BadObject(f"row group {group}, column {column}", -1, why, segment.path)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        return BadObject(f"row group {group}", -1, f"it cannot be read ({type(error).__name__})", segment.path)
    return None


def _times_beyond(segment: Segment, found: tuple[int, int] | None) -> str:
    """Return the error if times differ from those registered, "" otherwise."""
    first, last = segment.first_ms, segment.last_ms
    if found is None or first is None or last is None or first <= found[0] <= found[1] <= last:
        return ""
    return f"it has times from {found[0]} to {found[1]} ms, and its statistics said from {first} to {last}"


def _keep_out(task: Task, bad: Sequence[tuple[Segment, BadObject]], context: ActionContext) -> None:
    """Quarantine these files, end the task, and have its chunks planned without them."""
    with operation() as run:
        source = dialect.locked(DataSource.objects.filter(id=task.source_id)).get()
        if not Task.objects.filter(id=task.id, state=TaskState.OPEN).exists():
            return
        paths = [segment.path for segment, _ in bad]
        run.write("quarantine_files", context, target=str(source), detail={"files": paths, "jobs": _jobs(task)})
        end_tasks(run, [task], TaskState.ENDED, because=f"its file {paths[0]} cannot be read")
        quarantine(source, bad, task)


def _jobs(task: Task) -> list[str]:
    return [] if task.job is None else [task.job.name]


def quarantine(source: DataSource, bad: Sequence[tuple[Segment, BadObject]], task: Task | None = None) -> None:
    """Quarantine files of a table; the caller holds the table's lock."""
    now_ms, sequence = dialect.clock_ms(), source.sequence + 1
    for segment, error in bad:
        reason = f"{type(error).__name__}: {error}"[:REASON_MAX]
        Segment.objects.filter(id=segment.id, state=SegmentState.VISIBLE).update(
            state=SegmentState.QUARANTINED, reason=reason
        )
        BadFile.objects.get_or_create(
            source=source,
            path=segment.path,
            released_at_ms=None,
            defaults={
                "segment": segment,
                "size_bytes": segment.size_bytes,
                "job_id": None if task is None else task.job_id,
                "error_class": type(error).__name__,
                "message": error.reason,
                "place": error.section[:200],
                "offset": error.offset,
                "at_ms": now_ms,
            },
        )
    DataSource.objects.filter(id=source.id).update(sequence=sequence, revision=F("revision") + 1)
    granularity: Granularity = granularity_of(Policy.objects.get(source=source))
    mark_dirty(source, granularity, {(segment.start_ms, segment.end_ms) for segment, _ in bad})


def of_place(place: str, source: str = "source") -> Q:
    """Return the condition that the table at the lookup path ``source`` has this name."""
    tenant, _, name = place.partition("/")
    return Q(**{f"{source}__tenant": tenant, f"{source}__name": name})


def files_kept_out(place: str, since_ms: int, accepted_ms: int) -> Counter[str]:
    """Return the number of a table's files quarantined by failed merges since ``since_ms``, by error class.

    Counts only files registered after ``accepted_ms``. Both are wall time.
    """
    held = BadFile.objects.filter(of_place(place), released_at_ms=None, at_ms__gte=since_ms, job__isnull=False)
    return Counter(held.filter(segment__created_at_ms__gt=accepted_ms).values_list("error_class", flat=True))


def _fail(task: Task, context: ActionContext) -> int:
    """End a task that failed permanently and count it for its chunks; return how many are quarantined now."""
    assert task.job is not None, "an open task has a job"
    [job] = with_last_error(type(task.job).objects.filter(id=task.job.pk))
    why = f"{job.last_error_class}: {job.last_error_message}"[:REASON_MAX]
    with operation() as run:
        source = dialect.locked(DataSource.objects.filter(id=task.source_id)).get()
        if not Task.objects.filter(id=task.id, state=TaskState.OPEN).exists():
            return 0
        starts = list(TaskChunk.objects.filter(task=task, is_open=True).values_list("start_ms", flat=True))
        run.write("fail_task", context, target=str(source), detail={"jobs": _jobs(task), "error": why})
        end_tasks(run, [task], TaskState.ENDED, because=f"it failed too often: {why}")
        chunks = Chunk.objects.filter(source=source, start_ms__in=starts, state=ChunkStatus.UNSTABLE)
        chunks.update(failures=F("failures") + 1)
        over = chunks.filter(failures__gte=FAILED_TASKS_MAX)
        Chunk.objects.filter(source=source, start_ms__in=starts).update(is_dirty=True)
        count = over.update(state=ChunkStatus.DEFERRED, is_quarantined=True, quarantine_reason=why)
        DataSource.objects.filter(id=source.id).update(revision=F("revision") + 1, is_dirty=True)
    return count
