"""Build the specification of a task for a worker, and verify the result against the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from engine.core import ulids
from engine.lanes.tables.jobs import ChunkResult, TableChunk, TableFile, TableMergeResult, TableMergeSpec
from engine.schedule.errors import ResultRefused
from webadmin.lanes.tables.models import Policy, Segment
from webadmin.lanes.tables.policies import roll_up_of
from webadmin.lanes.tables.states import SegmentState, TaskState
from webadmin.lanes.tables.task_models import Task, TaskChunk, TaskSegment
from webadmin.schedule.models import Job

TIME_DIGITS = 10
"""Number of leading characters of a ULID that encode its time."""


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """An open task with its chunks in order and the segments it was planned on, those with data in merge order."""

    task: Task
    policy: Policy
    chunks: tuple[TaskChunk, ...]
    segments: tuple[Segment, ...]

    @property
    def files(self) -> list[Segment]:
        """Return the segments that are files, including those no longer visible."""
        return [one for one in self.segments if not one.is_tombstone]


def planned_tasks(jobs: Iterable[Job]) -> dict[int, PlannedTask]:
    """Return the open tasks of these jobs, by the row ids of the jobs; a fixed number of queries."""
    wanted = Task.objects.filter(job__in=[job.id for job in jobs], state=TaskState.OPEN)
    tasks = {task.id: task for task in wanted.select_related("source__policy", "job")}
    chunks: defaultdict[int, list[TaskChunk]] = defaultdict(list)
    for chunk in TaskChunk.objects.filter(task__in=tasks).order_by("start_ms"):
        chunks[chunk.task_id].append(chunk)
    segments: defaultdict[int, list[Segment]] = defaultdict(list)
    planned = TaskSegment.objects.filter(task__in=tasks).select_related("segment")
    for row in planned.order_by("segment__version", "segment__partition", "segment__path"):
        segments[row.task_id].append(row.segment)
    return {
        task.job_id: PlannedTask(task, task.source.policy, tuple(chunks[task.id]), tuple(segments[task.id]))
        for task in tasks.values()
        if task.job_id is not None
    }


def spec_of(job: Job, planned: PlannedTask, fence: int) -> TableMergeSpec:
    """Return the specification for the worker. Chunks whose files have no rows in them are left out."""
    source, policy = planned.task.source, planned.policy
    chunks = [
        TableChunk(start_ms=one.start_ms, end_ms=one.end_ms, files=_files(one, planned)) for one in planned.chunks
    ]
    return TableMergeSpec(
        job=job.name,
        tenant=job.tenant,
        source=source.name,
        url=source.url,
        chunks=tuple(chunk for chunk in chunks if chunk.files),
        time_column=source.time_column,
        time_unit=source.time_unit,
        sort_columns=tuple(policy.sort_columns),
        roll_up=roll_up_of(policy),
        target_bytes=policy.segment_bytes_max,
        target_rows=policy.segment_rows_max,
        fence=fence,
        task_memory_bytes=job.spec["task_memory_bytes"],
    )


def _files(chunk: TaskChunk, planned: PlannedTask) -> tuple[TableFile, ...]:
    """Return the files with rows in a chunk; a file that also has rows elsewhere is filtered by time."""
    start, end = chunk.start_ms, chunk.end_ms
    return tuple(
        TableFile(
            path=one.path,
            size=one.size_bytes,
            rows=one.row_count,
            whole=start <= first and last < end,
        )
        for one in planned.files
        for first, last in [_times(one)]
        if first < end and start <= last
    )


def _times(segment: Segment) -> tuple[int, int]:
    """Return the smallest and largest time in a file as far as known."""
    first = segment.start_ms if segment.first_ms is None else segment.first_ms
    last = segment.end_ms - 1 if segment.last_ms is None else segment.last_ms
    return first, last


def check_result(spec: TableMergeSpec, planned: PlannedTask, result: TableMergeResult) -> dict[int, ChunkResult]:
    """Return the result of each chunk by its start. Raises ResultRefused.

    Every chunk must have been merged from its own files, and every row read once and written to an output. Outputs must
    be of this job and token, in the folders of the sources, with times within their chunk.
    """
    for segment in planned.segments:
        if segment.state == SegmentState.QUARANTINED:
            raise ResultRefused(f"its source {segment.path!r} is in quarantine")
    results = {chunk.start_ms: chunk for chunk in result.chunks}
    if [(one.start_ms, one.end_ms) for one in spec.chunks] != [(one.start_ms, one.end_ms) for one in result.chunks]:
        raise ResultRefused(f"it has {len(result.chunks)} chunks that are not the {len(spec.chunks)} of the job")
    for chunk in spec.chunks:
        _check_chunk(spec, chunk, results[chunk.start_ms])
    rows = {file.path: file.rows for chunk in spec.chunks for file in chunk.files}
    read = sum(chunk.rows_read for chunk in result.chunks)
    if read != sum(rows.values()):
        raise ResultRefused(f"it read {read} rows, its sources have {sum(rows.values())}")
    return results


def _check_chunk(spec: TableMergeSpec, chunk: TableChunk, result: ChunkResult) -> None:
    where = f"chunk {chunk.start_ms}"
    if set(result.sources) != {file.path for file in chunk.files} or len(result.sources) != len(chunk.files):
        raise ResultRefused(f"{where}: it merged {len(result.sources)} files, not the job's {len(chunk.files)}")
    whole = sum(file.rows for file in chunk.files if file.whole)
    if result.rows_read < whole or (result.rows_read != whole and all(file.whole for file in chunk.files)):
        raise ResultRefused(f"{where}: it read {result.rows_read} rows, its sources have {whole}")
    if result.rows_written > result.rows_read or (spec.roll_up is None and result.rows_written != result.rows_read):
        raise ResultRefused(f"{where}: it read {result.rows_read} rows and wrote {result.rows_written}")
    if result.rows_read and not result.rows_written:
        raise ResultRefused(f"{where}: it read {result.rows_read} rows and wrote none")
    _check_outputs(spec, chunk, result, where)


def _check_outputs(spec: TableMergeSpec, chunk: TableChunk, result: ChunkResult, where: str) -> None:
    counts: defaultdict[str, int] = defaultdict(int)
    for file in result.outputs:
        counts[file.path.rpartition("/")[0]] += 1
    if unknown := counts.keys() - chunk.folders().keys():
        raise ResultRefused(f"{where}: it wrote into {min(unknown)!r}, where no source lies")
    own = {spec.output_path(chunk, folder, number) for folder, count in counts.items() for number in range(count)}
    for file in result.outputs:
        if file.path not in own:
            raise ResultRefused(f"{where}: {file.path!r} is not named after this job and its token")
        low, high = file.min_time_ms, file.max_time_ms
        if low is not None and high is not None and not chunk.start_ms <= low <= high < chunk.end_ms:
            raise ResultRefused(f"{where}: {file.path!r} has times from {low} to {high}")


def output_prefix(folder: str, start_ms: int) -> str:
    """Return the common prefix of all output paths of a chunk in a folder, for any job and run."""
    ulid = ulids.make(min(max(start_ms, 0), ulids.TIME_MS_MAX), bytes(ulids.ENTROPY_BYTES))
    name = f"lithify-{ulid[:TIME_DIGITS]}"
    return f"{folder}/{name}" if folder else name
