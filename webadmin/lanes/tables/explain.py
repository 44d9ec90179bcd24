"""Explain the state of a file or chunk of a table, the reason, and what would change it."""

from __future__ import annotations

from engine.lanes.tables.jobs import KIND
from engine.schedule.explain import Explanation, explain_place
from engine.schedule.model import JobState
from engine.schedule.progress import count_text
from webadmin.adminkit.formatting import moment_text, size_text
from webadmin.lanes.tables.cycle_view import budget_left
from webadmin.lanes.tables.models import BadFile, Chunk, DataSource, Policy, Segment
from webadmin.lanes.tables.states import ChunkStatus, SegmentState, TaskState
from webadmin.lanes.tables.status import statuses
from webadmin.lanes.tables.task_models import Task
from webadmin.schedule.explain import explain_job_row
from webadmin.schedule.explain_places import pauses_of, place_facts
from webadmin.schedule.models import Job

FOUND_MAX = 20


def explain_path(path: str, source: DataSource | None = None) -> list[Explanation]:
    """Explain every file with this path, or the one of ``source``. A path is unique only within a table."""
    found = Segment.objects.filter(path=path).select_related("source", "replaced_by")
    held = BadFile.objects.filter(path=path, segment=None, released_at_ms=None).select_related("source")
    if source is not None:
        found, held = found.filter(source=source), held.filter(source=source)
    explanations = [explain_segment(row) for row in found.order_by("id")[:FOUND_MAX]] if path else []
    return explanations + [_bad(row) for row in held[:FOUND_MAX]]


def explain_table(name: str) -> list[Explanation]:
    """Explain the table ``tenant/name``; an empty list if there is none."""
    tenant, _, table = name.partition("/")
    return [_table(source) for source in DataSource.objects.filter(tenant=tenant, name=table)]


def _table(source: DataSource) -> Explanation:
    now = statuses([source])[source.id]
    counts = ((now.unstable, "worth compacting"), (now.deferred, "deferred"))
    waits = [f"{count_text(count, 'chunk')} {what}" for count, what in counts if count > 0]
    held = (
        (now.quarantined, "chunk", "quarantined"),
        (now.bad_files, "file", "quarantined"),
        (now.stuck, "chunk", "stuck"),
    )
    excluded = [f"{count_text(count, unit)} {what}" for count, unit, what in held if count]
    stuck = f"planning is refused: {source.refusal}" if source.refusal else ""
    if source.publish_error:
        stuck = f"readers see an old version, since its manifest cannot be written: {source.publish_error}"
    paused = ["the table"] if source.is_paused else []
    paused += pauses_of(lane=KIND, tenant=source.tenant, level=0, planning=True)
    jobs = Job.objects.filter(id__in=Task.objects.filter(source=source, state=TaskState.OPEN).values("job"))
    return explain_place(
        f"Table {source}", place_facts(jobs, waits=waits, excluded=excluded, paused=paused, stuck=stuck)
    )


def explain_segment(row: Segment) -> Explanation:
    """Explain one file."""
    subject = f"File {row.path} of {row.source}"
    if row.state == SegmentState.VISIBLE:
        if row.added_sequence > row.source.published:
            return Explanation(
                subject=subject,
                state="coming",
                why="it is in the timeline, and the manifest is still to be written",
                next="the control task of manifests writes it within seconds",
            )
        chunk = Chunk.objects.filter(source=row.source, start_ms__lte=row.start_ms, end_ms__gt=row.start_ms).first()
        why = f"readers see it; its chunk: {_why(chunk)}" if chunk else "readers see it"
        return Explanation(subject=subject, state="visible", why=why)
    if row.state == SegmentState.QUARANTINED:
        held = BadFile.objects.filter(segment=row, released_at_ms=None).first()
        if held is not None:
            return _bad(held)
    following = {
        SegmentState.REPLACED: "its object is deleted after the table's deletion delay",
        SegmentState.QUARANTINED: "readers see it again after it is repaired and released",
        SegmentState.DELETED: "",
    }[SegmentState(row.state)]
    return Explanation(subject=subject, state=row.state, why=row.reason or "readers do not see it", next=following)


def _bad(row: BadFile) -> Explanation:
    where = f" in {row.place}" if row.place else ""
    where += f" at {row.offset}" if row.offset >= 0 else ""
    return Explanation(
        subject=f"File {row.path} of {row.source}",
        state="quarantined",
        why=f"it cannot be read: {row.error_class}{where}: {row.message}",
        next="it is added to the table after it is repaired and released",
    )


def explain_chunk(source: DataSource, time_ms: int) -> Explanation:
    """Explain the chunk of a table that contains an instant."""
    chunk = Chunk.objects.filter(source=source, start_ms__lte=time_ms, end_ms__gt=time_ms).first()
    if chunk is None:
        subject = f"The chunk of {source} at {moment_text(time_ms)}"
        return Explanation(subject=subject, state="empty", why="no file was ever registered for it")
    subject = f"The chunk of {source} from {moment_text(chunk.start_ms)}"
    return Explanation(subject=subject, state=_state(chunk), why=_why(chunk), next=_next(chunk))


def _state(chunk: Chunk) -> str:
    return "quarantined" if chunk.is_quarantined else chunk.state


def _why(chunk: Chunk) -> str:
    if not chunk.analysis:
        return "not analysed yet"
    why = chunk.reason or chunk.state
    return f"{why}; changed since its analysis" if chunk.is_dirty else why


def _next(chunk: Chunk) -> str:
    """Return what would change the state of a chunk."""
    source = chunk.source
    if source.is_paused:
        return "the table is paused: it is planned after the table is resumed"
    if source.refusal:
        return f"nothing of the table is planned: {source.refusal}"
    if chunk.is_dirty:
        return "the controller looks at it within seconds"
    if chunk.task is not None:
        return _next_of_task(chunk.task)
    return {
        ChunkStatus.EMPTY: "it is analysed when a file is registered for it",
        ChunkStatus.STABLE: "it is analysed again when a file is added or removed",
        ChunkStatus.UNSTABLE: "the controller creates a task within seconds",
        ChunkStatus.DEFERRED: "it is retried by an operator, or a file in it changes"
        if chunk.is_quarantined
        else "it is planned again when fewer tasks wait",
        ChunkStatus.SKIPPED: "it is analysed when its exclusion or override ends",
    }[ChunkStatus(chunk.state)]


def _next_of_task(task: Task) -> str:
    if task.state != TaskState.OPEN or task.job is None:
        return "the controller looks at it within seconds"
    if task.job.state == JobState.BLOCKED:
        needed = task.needs.filter(needs__state=TaskState.OPEN).select_related("needs").first()
        if needed is not None:
            return f"{task} starts when {needed.needs} ends, which shares a segment with it"
        policy = Policy.objects.get(source=task.source_id)
        left = budget_left(policy)
        if left is not None and left <= 0:
            return f"{task} starts when the daily budget of {size_text(policy.bytes_per_day)} allows it"
        return f"{task} starts when the limits allow it beside the running tasks; {task.passed} tasks passed it"
    if task.job.state == JobState.PARKED:
        return f"the job of {task} is parked: {task.job.parked_reason}"
    explanation = explain_job_row(task.job)
    return f"the job of {task}, {task.job.name}, is {explanation.state} ({explanation.why})"
