"""The index in the admin: blocks with their lineage, read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from engine.core import ulids
from webadmin.adminkit import formatting as show
from webadmin.adminkit.filters import TIME_SPANS, LevelFilter, ShardFilter, TenantRowFilter
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Section
from webadmin.adminkit.verdict import Notice
from webadmin.lanes.profiles import operator_queries as queries
from webadmin.lanes.profiles.admin import block_page
from webadmin.lanes.profiles.explain import explain_block_row
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.operator_queries import command_now_ms
from webadmin.schedule.wall_times import NowColumns

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

LIVE = "live"


class BlockStateFilter(admin.SimpleListFilter):
    """Filter of blocks by state, or all live ones."""

    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(LIVE, "live: all that queries read"), *BlockState.choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == LIVE:
            return queries.live_blocks(queryset)
        if self.value() == BlockState.OWNED:
            return queries.owned_blocks(queryset)
        state = self.value()
        return queries.blocks_in_state(queryset, state) if state in BlockState.values else queryset


class CreatedFilter(admin.SimpleListFilter):
    """Filter of blocks by the time in their id, relative to the newest command."""

    title = "time in the id"
    parameter_name = "made"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(name, f"the last {words.removeprefix('the last ')}") for name, words, _ in TIME_SPANS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        spans = {name: span_ms for name, _, span_ms in TIME_SPANS}
        span_ms = spans.get(self.value() or "")
        if span_ms is None:
            return queryset
        from_ms = command_now_ms() - span_ms
        return queryset.filter(ulid__gte=ulids.first(from_ms))


@admin.register(Block)
class BlockAdmin(ReadOnlyAdmin):
    """Blocks, the latest arrival first."""

    list_display = ("id_cell", "state_cell", "place", "size", "data_time", "arrived", "job")
    list_filter = (BlockStateFilter, LevelFilter, CreatedFilter, TenantRowFilter, ShardFilter)
    search_fields = ("ulid",)
    search_help_text = "A block's id, its first 6 characters, or its object key"
    shortcuts = (
        ("Live", f"state={LIVE}"),
        *((state.label.capitalize(), f"state={state.value}") for state in BlockState),
    )
    about = "Every object the index knows: segments as they were written, and the blocks they were merged into."
    empty_list = (
        "No blocks. A writer registers them as they are flushed; import_blocks finds those already in a bucket."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Block]:
        return queries.blocks_for_list(command_now_ms())

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Block | None:
        """Return the whole row, including the metadata."""
        if not object_id.isascii() or not object_id.isdigit() or len(object_id) > 18:
            return None
        return Block.objects.select_related("tenant", "queue", "owner_job").filter(pk=object_id).first()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Block], search_term: str
    ) -> tuple[QuerySet[Block], bool]:
        return (queries.find_blocks(queryset, search_term) if search_term.strip() else queryset), False

    def heading(self, row: Block) -> str:
        return f"{'Block' if row.level else 'Segment'} {row.ulid}"

    def sections(self, row: Block) -> Sequence[Section]:
        return block_page.block_sections(row, command_now_ms())

    def notices(self, row: Block) -> Sequence[Notice]:
        return [Notice(tone="quiet", text=explain_block_row(row).sentence)]

    @display(description="Block")
    def id_cell(self, row: Block) -> SafeString:
        return show.code(row.ulid)

    @display(description="State")
    def state_cell(self, row: Block) -> SafeString:
        return block_page.state_with_reason(row)

    @display(description="Tenant")
    def place(self, row: Block) -> SafeString:
        return show.note(block_page.tenant_cell(row), show.place_text(row.shard, row.level))

    @display(description="Size")
    def size(self, row: Block) -> SafeString:
        return show.note(show.size_text(row.size_bytes), show.counted(row.dataset_count, "dataset"))

    @display(description="Data from, to (UTC)")
    def data_time(self, row: Block) -> SafeString:
        return show.time_range_cell(row.min_time_ms, row.max_time_ms)

    @display(description="Arrived ago")
    def arrived(self, row: WithAnnotations[Block, NowColumns]) -> SafeString | str:
        return show.waited(row.arrived_at_ms, row.now_ms, clock=show.COMMAND_TIME)

    @display(description="Job")
    def job(self, row: Block) -> SafeString | str:
        return show.row_link(row.owner_job, show.short_code(row.owner_job.name) if row.owner_job else "")
