"""Admin pages of tables, chunks and tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from engine.lanes.tables.plan.model import PRIORITY_UNIT
from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.read_only import BoundedChangeList, ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Notice, Section, Table
from webadmin.lanes.tables.actions import CHUNK_ACTIONS, SOURCE_ACTIONS
from webadmin.lanes.tables.admin.chunk_sections import (
    OUTCOME_TONES,
    chunk_name,
    chunk_notices,
    chunk_sections,
    state_badge,
)
from webadmin.lanes.tables.admin.list_filters import ChunkStateFilter, SourceFilter, TaskStateFilter
from webadmin.lanes.tables.admin.source_sections import (
    clears,
    manifest_words,
    source_notices,
    source_sections,
    timeline_address,
    timeline_link,
)
from webadmin.lanes.tables.admin.source_sections import state_badge as source_badge
from webadmin.lanes.tables.models import Chunk, DataSource
from webadmin.lanes.tables.states import ChunkOutcome, TaskState
from webadmin.lanes.tables.status import TableStatus, statuses
from webadmin.lanes.tables.task_models import Task, TaskChunk
from webadmin.lanes.tables.timeline_page.task_bars import colour_label, open_needs, state_label

SHOWN = 100
TASK_TONES = {TaskState.OPEN: "busy", TaskState.DONE: "good", TaskState.SHED: "warn", TaskState.ENDED: "warn"}
JOB_TONES = {"running": "busy", "waiting": "quiet", "blocked": "quiet", "parked": "bad"}


class StandingChangeList(BoundedChangeList):
    """A change list that reads the statuses of the listed tables in one pass."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        found = statuses(rows)
        for row in rows:
            row.now = found[row.id]
        self.result_list = rows


@admin.register(DataSource)
class DataSourceAdmin(ActionAdmin):
    """Tables with their statuses."""

    list_display = (
        "name_cell",
        "timeline_cell",
        "tasks_cell",
        "chunks_cell",
        "left_cell",
        "rates_cell",
        "manifest",
        "state",
    )
    search_fields = ("name",)
    search_help_text = "A table's name"
    about = (
        "Parquet tables that Lithify compacts by time. The timeline of a table shows the state of each chunk. "
        "Register tables with POST /api/v1/tables/TENANT, or adopt a folder with manage.py tables adopt."
    )
    empty_list = "No tables. Register one with the REST API or adopt one with manage.py tables adopt."
    operator_actions = SOURCE_ACTIONS

    def back_address(self, rows: Sequence[DataSource]) -> str:
        return show.page_address(rows[0]) if len(rows) == 1 else super().back_address(rows)

    def get_queryset(self, request: HttpRequest) -> QuerySet[DataSource]:
        return DataSource.objects.select_related("policy")

    change_list_class = StandingChangeList

    def heading(self, row: DataSource) -> str:
        return f"Table {row}"

    def notices(self, row: DataSource) -> Sequence[Notice]:
        [now] = statuses([row]).values()
        return source_notices(row, now)

    def sections(self, row: DataSource) -> Sequence[Section]:
        return source_sections(row)

    @display(description="Table")
    def name_cell(self, row: DataSource) -> SafeString:
        return show.note(row.name, row.tenant)

    @display(description="Timeline")
    def timeline_cell(self, row: DataSource) -> SafeString:
        return timeline_link(row, "Show")

    @display(description="Tasks")
    def tasks_cell(self, row: Any) -> SafeString | str:
        now: TableStatus = row.now
        parked = f", {show.count_text(now.parked)} parked" if now.parked else ""
        more = f"{show.count_text(now.waiting)} waiting, {show.count_text(now.blocked)} blocked{parked}"
        return show.note(f"{show.count_text(now.running)} running", more)

    @display(description="Chunks")
    def chunks_cell(self, row: Any) -> SafeString | str:
        now: TableStatus = row.now
        aside = f", {show.count_text(now.quarantined)} quarantined" if now.quarantined else ""
        return show.note(show.count_text(now.chunks), f"{show.count_text(now.deferred)} deferred{aside}")

    @display(description="To rewrite")
    def left_cell(self, row: Any) -> SafeString | str:
        return show.note(show.size_text(row.now.to_rewrite), clears(row.now))

    @display(description="Last hour")
    def rates_cell(self, row: Any) -> SafeString | str:
        return show.note(f"{show.size_text(row.now.arrived)} came in", f"{show.size_text(row.now.drained)} rewritten")

    @display(description="Manifest")
    def manifest(self, row: DataSource) -> SafeString | str:
        return manifest_words(row)

    @display(description="State")
    def state(self, row: Any) -> SafeString:
        return source_badge(row, row.now)


@admin.register(Chunk)
class ChunkAdmin(ActionAdmin):
    """Chunks of tables, newest first."""

    list_display = ("name_cell", "source_cell", "state", "segments", "largest", "priority_cell", "reason_cell")
    list_filter = (ChunkStateFilter, SourceFilter)
    shortcuts = (("Quarantined", "state=quarantined"), ("Deferred", "state=deferred"), ("Unstable", "state=unstable"))
    about = "Time chunks of tables with the result of their analysis. The timeline shows them in order."
    empty_list = "No chunks. Chunks are created when files are registered."
    operator_actions = CHUNK_ACTIONS

    def action_rows(self, ids: Sequence[str]) -> QuerySet[Chunk]:
        return Chunk.objects.filter(pk__in=ids).select_related("source").order_by("source", "start_ms")

    def back_address(self, rows: Sequence[Chunk]) -> str:
        return timeline_address(rows[0].source, rows[0].start_ms) if len(rows) == 1 else super().back_address(rows)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Chunk]:
        return Chunk.objects.select_related("source__policy", "task__job").order_by("-start_ms", "-id")

    def heading(self, row: Chunk) -> str:
        return f"Chunk {chunk_name(row)} of {row.source}"

    def notices(self, row: Chunk) -> Sequence[Notice]:
        return chunk_notices(row)

    def sections(self, row: Chunk) -> Sequence[Section]:
        where = Facts(title="Where", rows=[("Table", timeline_link(row.source, str(row.source), row.start_ms))])
        return [where, *chunk_sections(row)]

    @display(description="Chunk (UTC)")
    def name_cell(self, row: Chunk) -> SafeString:
        return show.name(chunk_name(row))

    @display(description="Table")
    def source_cell(self, row: Chunk) -> SafeString | str:
        return timeline_link(row.source, str(row.source), row.start_ms)

    @display(description="State")
    def state(self, row: Chunk) -> SafeString:
        return show.note(state_badge(row), "misaligned") if row.note else state_badge(row)

    @display(description="Segments")
    def segments(self, row: Chunk) -> SafeString | str:
        return show.note(show.count_text(row.segment_count), show.size_text(row.byte_count))

    @display(description="Largest")
    def largest(self, row: Chunk) -> str:
        return show.size_text(row.largest_bytes)

    @display(description="Priority")
    def priority_cell(self, row: Chunk) -> str:
        return f"{row.priority / PRIORITY_UNIT:.3f}" if row.priority else show.NOTHING

    @display(description="Why")
    def reason_cell(self, row: Chunk) -> str:
        return row.quarantine_reason if row.is_quarantined else row.reason


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin):
    """Tasks of tables, newest first."""

    list_display = ("id_cell", "source_cell", "interval", "size", "state_cell", "priority_cell", "made")
    list_filter = (TaskStateFilter, SourceFilter)
    shortcuts = tuple((state.label.capitalize(), f"state={state.value}") for state in TaskState)
    about = "Consecutive chunks that one job rewrites. Each chunk is committed separately."
    empty_list = "No tasks."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Task]:
        return open_needs(Task.objects.select_related("source", "job")).defer("job__spec", "job__result")

    def notices(self, row: Task) -> Sequence[Notice]:
        if row.job is not None and row.state == TaskState.OPEN and state_label(row.job, needs=False) == "parked":
            return [Notice(tone="bad", text=f"Its job is parked: {row.job.parked_reason}")]
        return []

    def sections(self, row: Task) -> Sequence[Section]:
        tasks = open_needs(Task.objects.select_related("job")).defer("job__spec", "job__result")
        needs, holds = tasks.filter(holds_up__task=row)[:SHOWN], tasks.filter(needs__needs=row)[:SHOWN]
        return [
            self._facts(row),
            _tasks_table("Prerequisites", needs, "None: the task shares no segment with another task."),
            _tasks_table("Dependent tasks", holds, "None."),
            _chunks_table(row),
        ]

    def _facts(self, row: Task) -> Facts:
        return Facts(
            title="Task",
            rows=[
                ("Table", timeline_link(row.source, str(row.source), row.start_ms)),
                ("Chunks (UTC)", self.interval(row)),
                ("State", self.state_cell(row)),
                ("Job", show.row_link(row.job)),
                ("Colour", colour_label(row.colour)),
                ("Priority", self.priority_cell(row)),
                ("Cost", show.size_text(row.cost) + (", runs alone" if row.is_over_limit else "")),
                ("Planned on", f"{show.counted(row.segment_count, 'segment')}, {show.size_text(row.byte_count)}"),
                ("Expected", show.counted(row.expected_outputs, "segment")),
                ("Read", f"{show.size_text(row.bytes_read)}, {_rows(row.rows_read)}"),
                ("Written", f"{show.size_text(row.bytes_written)}, {_rows(row.rows_written)}"),
                ("Why", row.cause),
                ("Reason for end", row.ended_because or show.NOTHING),
                ("Passed over", show.counted(row.passed, "time")),
                ("Made", self.made(row)),
                ("Command", show.command_link(row.command_index)),
            ],
        )

    @display(description="Task")
    def id_cell(self, row: Task) -> str:
        return str(row)

    @display(description="Table")
    def source_cell(self, row: Task) -> SafeString | str:
        return timeline_link(row.source, str(row.source), row.start_ms)

    @display(description="Chunks (UTC)")
    def interval(self, row: Task) -> SafeString | str:
        return show.note(
            show.counted(row.chunk_count, "chunk"),
            f"{show.moment_text(row.start_ms)} … {show.moment_text(row.end_ms)}",
        )

    @display(description="Size")
    def size(self, row: Task) -> SafeString | str:
        return show.note(show.counted(row.segment_count, "segment"), show.size_text(row.byte_count))

    @display(description="State")
    def state_cell(self, row: Any) -> SafeString:
        if row.state != TaskState.OPEN:
            return show.badge(row.state, TASK_TONES[TaskState(row.state)], row.ended_because)
        word = state_label(row.job, needs=row.has_needs)
        return show.note(show.badge(word, JOB_TONES.get(word, "quiet")), colour_label(row.colour))

    @display(description="Priority")
    def priority_cell(self, row: Task) -> str:
        return f"{row.priority / PRIORITY_UNIT:.3f}" + (", overridden" if row.is_ordered else "")

    @display(description="Made (UTC)")
    def made(self, row: Task) -> str:
        return show.moment_text(row.created_at_ms)


def _rows(count: int | None) -> str:
    return show.NOTHING if count is None else show.counted(count, "row")


def _tasks_table(title: str, tasks: Iterable[Any], empty: str) -> Table:
    return Table(
        title=title,
        headers=("Task", "State", "Chunks", "Why"),
        rows=[
            (
                show.row_link(each),
                state_label(each.job, needs=each.has_needs) if each.state == TaskState.OPEN else each.state,
                show.count_text(each.chunk_count),
                each.cause,
            )
            for each in tasks
        ],
        empty=empty,
    )


def _chunks_table(task: Task) -> Table:
    rows = TaskChunk.objects.filter(task=task).order_by("start_ms")[: SHOWN + 1]
    return Table(
        title="Its chunks",
        headers=("Chunk (UTC)", "Planned on", "Became", "Result", "Why"),
        rows=[
            (
                timeline_link(task.source, show.moment_text(each.start_ms), each.start_ms),
                f"{show.count_text(each.segment_count)}, {show.size_text(each.byte_count)}",
                show.badge(each.get_outcome_display(), OUTCOME_TONES[ChunkOutcome(each.outcome)]),
                f"{show.count_text(each.output_count or 0)}, {show.size_text(each.output_bytes)}",
                each.why or show.NOTHING,
            )
            for each in rows[:SHOWN]
        ],
        more=f"{task.chunk_count - SHOWN} more" if len(rows) > SHOWN else "",
    )
