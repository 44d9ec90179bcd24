"""Sections of the job page for tables: the task, its chunks with their outcomes, and its files."""

from __future__ import annotations

from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Facts, Section, Table
from webadmin.lanes.tables.models import Segment
from webadmin.lanes.tables.task_models import Task, TaskChunk
from webadmin.schedule.models import Job

ROWS_SHOWN = 100


def job_sections(job: Job) -> list[Section]:
    """Return the sections; an empty list if the job's task is no longer recorded."""
    task = Task.objects.filter(job=job).select_related("source").first()
    if task is None:
        return []
    chunks = TaskChunk.objects.filter(task=task).order_by("start_ms")[:ROWS_SHOWN]
    return [
        Facts(
            title="Task",
            rows=[
                ("Table", str(task.source)),
                ("Interval", f"{show.moment_text(task.start_ms)} to {show.moment_text(task.end_ms)}"),
                ("Chunks", str(task.chunk_count)),
                ("Cost", show.size_text(task.cost)),
                ("Why", task.cause),
                (
                    "Waits for",
                    ", ".join(str(each.needs) for each in task.needs.select_related("needs")) or show.NOTHING,
                ),
                ("Reason for end", task.ended_because or show.NOTHING),
            ],
        ),
        Table(
            title="Chunks",
            headers=("From", "Segments", "Bytes", "Outcome", "Why"),
            rows=[
                (
                    show.moment_text(row.start_ms),
                    str(row.segment_count),
                    show.size_text(row.byte_count),
                    row.get_outcome_display(),
                    row.why,
                )
                for row in chunks
            ],
        ),
        _files("Sources", list(Segment.objects.filter(planned_in__task=task, is_tombstone=False)[:ROWS_SHOWN])),
        _files("Result", list(Segment.objects.filter(made_by=task)[:ROWS_SHOWN])),
    ]


def _files(title: str, segments: list[Segment]) -> Table:
    return Table(
        title=title,
        headers=("File", "From", "Rows", "Size", "State"),
        rows=[
            (one.path, show.moment_text(one.start_ms), str(one.row_count), show.size_text(one.size_bytes), one.state)
            for one in segments
        ],
    )
