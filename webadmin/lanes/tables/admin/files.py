"""Admin pages of files, bad files and chunk actions."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.filters import StateFilter
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Json, Notice, Section
from webadmin.base.database import dialect
from webadmin.lanes.tables.actions import END_OVERRIDE, RELEASE_FILES
from webadmin.lanes.tables.admin.chunk_sections import chunk_name_of
from webadmin.lanes.tables.admin.list_filters import SourceFilter
from webadmin.lanes.tables.admin.source_sections import timeline_link
from webadmin.lanes.tables.models import BadFile, ChunkOverride, Segment
from webadmin.lanes.tables.states import SegmentState

SEGMENT_TONES = {
    SegmentState.VISIBLE: "good",
    SegmentState.REPLACED: "quiet",
    SegmentState.QUARANTINED: "bad",
    SegmentState.DELETED: "quiet",
}


class SegmentStateFilter(StateFilter):
    """Filter files by state."""

    states = SegmentState


@admin.register(Segment)
class SegmentAdmin(ReadOnlyAdmin):
    """Files of tables, newest first."""

    list_display = ("path_cell", "source_cell", "interval", "size", "state_cell", "came")
    list_filter = (SegmentStateFilter, SourceFilter)
    about = "Files of tables: visible to readers, replaced and awaiting deletion, or quarantined."
    empty_list = "No files."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Segment]:
        return Segment.objects.select_related("source", "made_by", "replaced_by", "registration").order_by("-id")

    def sections(self, row: Segment) -> Sequence[Section]:
        facts = [Json(title="Footer", data=row.facts, folded=True)] if row.facts else []
        return [
            Facts(
                title="File",
                rows=[
                    ("Table", timeline_link(row.source, str(row.source), row.start_ms)),
                    ("Path", show.code(row.path or "none: a tombstone has no file")),
                    ("State", show.note(self.state_cell(row), row.reason)),
                    ("Size", f"{show.size_text(row.size_bytes)}, {show.counted(row.row_count, 'row')}"),
                    ("Interval (UTC)", show.time_range(row.start_ms, row.end_ms)),
                    ("Time range (UTC)", _times(row)),
                    ("Version", f"{row.version}, partition {row.partition}"),
                    ("Made by", show.row_link(row.made_by)),
                    ("Replaced by", show.row_link(row.replaced_by)),
                    ("Added with sequence", show.count_text(row.added_sequence)),
                    ("Replaced in sequence", _count(row.replaced_in)),
                    ("Came", self.came(row)),
                ],
            ),
            *facts,
        ]

    @display(description="File")
    def path_cell(self, row: Segment) -> SafeString:
        return show.name(str(row))

    @display(description="Table")
    def source_cell(self, row: Segment) -> SafeString | str:
        return timeline_link(row.source, str(row.source), row.start_ms)

    @display(description="Interval (UTC)")
    def interval(self, row: Segment) -> SafeString | str:
        return show.time_range_cell(row.start_ms, row.end_ms)

    @display(description="Size")
    def size(self, row: Segment) -> SafeString | str:
        return show.note(show.size_text(row.size_bytes), show.counted(row.row_count, "row"))

    @display(description="State")
    def state_cell(self, row: Segment) -> SafeString:
        return show.badge(row.get_state_display(), SEGMENT_TONES[SegmentState(row.state)], row.reason)

    @display(description="Came (UTC)")
    def came(self, row: Segment) -> str:
        return show.moment_text(row.created_at_ms)


def _times(row: Segment) -> SafeString | str:
    if row.first_ms is None or row.last_ms is None:
        return show.NOTHING
    return show.time_range(row.first_ms, row.last_ms)


def _count(number: int | None) -> str:
    return show.NOTHING if number is None else show.count_text(number)


@admin.register(BadFile)
class BadFileAdmin(ActionAdmin):
    """Files that could not be read; files still in quarantine first."""

    list_display = ("path_cell", "source_cell", "reason", "since", "state_cell")
    list_filter = (SourceFilter,)
    about = "Files that could not be read. They are hidden from readers. Release a file after its repair."
    empty_list = "No unreadable files."
    operator_actions = (RELEASE_FILES,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[BadFile]:
        return BadFile.objects.select_related("source", "segment", "job").order_by("-id")

    def heading(self, row: BadFile) -> str:
        return f"Quarantined file: {row.path}"

    def notices(self, row: BadFile) -> Sequence[Notice]:
        if row.released_at_ms is not None:
            return [Notice(tone="good", text=f"{row.released_by} released it: {row.release_why}")]
        return [Notice(tone="bad", text=f"Rows of this file are hidden from readers: {row.error_class}: {row.message}")]

    def sections(self, row: BadFile) -> Sequence[Section]:
        return [
            Facts(
                title="File",
                rows=[
                    ("Table", show.row_link(row.source)),
                    ("Path", show.code(row.path)),
                    ("Size", show.size_text(row.size_bytes)),
                    ("Error", f"{row.error_class}: {row.message}"),
                    ("Row group and column", row.place or show.NOTHING),
                    ("Offset", show.count_text(row.offset) if row.offset >= 0 else show.NOTHING),
                    ("Known as", show.row_link(row.segment)),
                    ("Found by", show.row_link(row.job)),
                    ("Since", self.since(row)),
                ],
            )
        ]

    @display(description="File")
    def path_cell(self, row: BadFile) -> SafeString:
        return show.name(row.path)

    @display(description="Table")
    def source_cell(self, row: BadFile) -> str:
        return str(row.source)

    @display(description="Reason")
    def reason(self, row: BadFile) -> SafeString | str:
        return show.note(row.error_class, row.message[:200])

    @display(description="Since (UTC)")
    def since(self, row: BadFile) -> str:
        return show.moment_text(row.at_ms)

    @display(description="State")
    def state_cell(self, row: BadFile) -> SafeString:
        return show.badge("released", "good") if row.released_at_ms is not None else show.badge("quarantined", "bad")


@admin.register(ChunkOverride)
class ChunkOverrideAdmin(ActionAdmin):
    """Chunk actions of operators, newest first."""

    list_display = ("kind_cell", "source_cell", "interval", "actor", "why", "state_cell")
    list_filter = (SourceFilter,)
    about = "Intervals that an operator set to be compacted now or never."
    empty_list = "No overrides: the policies apply."
    operator_actions = (END_OVERRIDE,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ChunkOverride]:
        return ChunkOverride.objects.select_related("source").order_by("-id")

    def sections(self, row: ChunkOverride) -> Sequence[Section]:
        now_ms = dialect.clock_ms()
        return [
            Facts(
                title=str(row.get_kind_display()).capitalize(),
                rows=[
                    ("Override", str(row)),
                    ("Table", timeline_link(row.source, str(row.source), row.start_ms)),
                    ("Chunks (UTC)", chunk_name_of(row)),
                    ("Who", row.actor),
                    ("Why", row.why),
                    ("Given", show.age(row.created_at_ms, now_ms)),
                    ("Ended", show.age(row.ended_at_ms, now_ms)),
                    ("Reason for end", row.ended_because or show.NOTHING),
                ],
            )
        ]

    @display(description="Override")
    def kind_cell(self, row: ChunkOverride) -> str:
        return str(row.get_kind_display())

    @display(description="Table")
    def source_cell(self, row: ChunkOverride) -> SafeString | str:
        return timeline_link(row.source, str(row.source), row.start_ms)

    @display(description="Chunks (UTC)")
    def interval(self, row: ChunkOverride) -> str:
        return chunk_name_of(row)

    @display(description="State")
    def state_cell(self, row: ChunkOverride) -> SafeString:
        if row.ended_at_ms is None:
            return show.badge("in force", "busy")
        return show.badge("ended", "quiet", row.ended_because)
