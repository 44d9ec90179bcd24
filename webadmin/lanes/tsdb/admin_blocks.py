"""Admin pages of blocks, quarantined blocks and outbox steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.filters import StateFilter
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Notice, Section, Table
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.actions import RELEASE
from webadmin.lanes.tsdb.block_cells import TenantFilter, block_state
from webadmin.lanes.tsdb.explain import explain_block
from webadmin.lanes.tsdb.models import Block, BlockQuarantine, OutboxStep
from webadmin.lanes.tsdb.states import BlockState

SHOWN = 100


class BlockStateFilter(StateFilter):
    """Filter blocks by state."""

    states = BlockState


class OpenFilter(admin.SimpleListFilter):
    """Filter outbox steps by whether they are done."""

    title = parameter_name = "now"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("open", "still to be written"), ("done", "written")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "open":
            return queryset.filter(done_at_ms=None)
        return queryset.exclude(done_at_ms=None) if self.value() == "done" else queryset


@admin.register(Block)
class BlockAdmin(ReadOnlyAdmin):
    """Blocks of buckets, most recently found first."""

    list_display = ("id_cell", "tenant_cell", "data", "level", "series_cell", "size", "state_cell")
    list_filter = (BlockStateFilter, TenantFilter)
    search_fields = ("ulid__exact",)
    search_help_text = "Complete block id"
    ordering = ("-id",)
    about = "Blocks of the buckets, including deleted ones since adoption."
    empty_list = "No blocks. Adopt a bucket; a control worker scans it."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Block]:
        blocks = Block.objects.select_related("tenant__bucket", "tenant__folder", "group", "made_by").defer(
            "tenant__folder__examined", "tenant__slots"
        )
        return blocks.defer("meta", "files", "made_by__spec", "made_by__result")

    def notices(self, row: Block) -> Sequence[Notice]:
        return [Notice(tone="bad" if row.quarantined else "quiet", text=explain_block(row).sentence)]

    def sections(self, row: Block) -> Sequence[Section]:
        return [
            Facts(
                title="Block",
                rows=[
                    ("Tenant", show.row_link(row.tenant)),
                    ("State", block_state(row)),
                    ("Data", show.time_range(row.min_time_ms, row.max_time_ms)),
                    ("Level", str(row.level)),
                    ("Part", f"{row.partition + 1} of {row.partitions}"),
                    ("Series", show.count_text(row.series)),
                    ("Samples", show.count_text(row.samples)),
                    ("Size", f"{show.size_text(row.size_bytes)} in {show.counted(len(row.files), 'file')}"),
                    ("Group key", show.code(row.group_key)),
                    ("Merged by", show.row_link(row.group)),
                    ("Written by", show.row_link(row.made_by)),
                    ("Descends from", show.counted(len(row.origins), "block")),
                    ("Quarantined", row.quarantined or row.no_compact or show.NOTHING),
                ],
            ),
            Table(
                title="Writes to the bucket",
                headers=("Step", "Done", "Last error"),
                rows=[
                    (step.get_kind_display(), self._done(step), step.last_error or show.NOTHING)
                    for step in OutboxStep.objects.filter(block=row)[:SHOWN]
                ],
                empty="Nothing.",
            ),
        ]

    def _done(self, step: OutboxStep) -> SafeString | str:
        return show.age(step.done_at_ms, dialect.clock_ms()) if step.done_at_ms else show.badge("not yet", "busy")

    @display(description="Id")
    def id_cell(self, row: Block) -> SafeString:
        return show.code(row.ulid)

    @display(description="Tenant")
    def tenant_cell(self, row: Block) -> SafeString | str:
        return show.note(row.tenant.name, row.tenant.bucket.name)

    @display(description="Data")
    def data(self, row: Block) -> SafeString:
        return show.time_range_cell(row.min_time_ms, row.max_time_ms)

    @display(description="Series")
    def series_cell(self, row: Block) -> str:
        return show.count_text(row.series)

    @display(description="Size")
    def size(self, row: Block) -> str:
        return show.size_text(row.size_bytes)

    @display(description="State")
    def state_cell(self, row: Block) -> SafeString:
        return block_state(row)


@admin.register(BlockQuarantine)
class BlockQuarantineAdmin(ActionAdmin):
    """Quarantined source blocks."""

    list_display = ("block_cell", "error", "since", "state")
    about = "Blocks that could not be read, with file, offset and error. Other blocks are merged without them."
    empty_list = "No block is quarantined."
    operator_actions = (RELEASE,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[BlockQuarantine]:
        return BlockQuarantine.objects.select_related("block__tenant__bucket", "job")

    def action_rows(self, ids: Sequence[str]) -> QuerySet[Any]:
        return super().action_rows(ids).select_related("block")

    def sections(self, row: BlockQuarantine) -> Sequence[Section]:
        return [
            Facts(
                title="Damage",
                rows=[
                    ("Block", show.row_link(row.block)),
                    ("File", row.file or show.NOTHING),
                    ("Offset", show.NOTHING if row.offset < 0 else show.count_text(row.offset)),
                    ("Error", f"{row.error_class}: {row.message}"),
                    ("Found by", show.row_link(row.job)),
                    ("State", self.state(row)),
                    ("Released by", f"{row.released_by}: {row.release_why}" if row.released_by else show.NOTHING),
                    ("Command", show.command_link(row.command_index)),
                ],
            )
        ]

    @display(description="Block")
    def block_cell(self, row: BlockQuarantine) -> SafeString | str:
        return show.note(row.block.ulid, f"{row.block.tenant.bucket.name}/{row.block.tenant.name}")

    @display(description="Error")
    def error(self, row: BlockQuarantine) -> SafeString | str:
        where = f"{row.file} at {row.offset}" if row.offset >= 0 else row.file
        return show.note(f"{row.error_class} in {where}" if where else row.error_class, row.message)

    @display(description="Since")
    def since(self, row: BlockQuarantine) -> SafeString | str:
        return show.age(row.at_ms, dialect.clock_ms())

    @display(description="State")
    def state(self, row: BlockQuarantine) -> SafeString:
        return show.badge("quarantined", "bad") if row.released_at_ms is None else show.badge("released", "quiet")


@admin.register(OutboxStep)
class OutboxStepAdmin(ReadOnlyAdmin):
    """Outbox steps: writes to buckets."""

    list_display = ("step", "block_cell", "attempts", "done", "error")
    list_filter = (OpenFilter, TenantFilter)
    shortcuts = (("Still to be written", "now=open"), ("Written", "now=done"))
    ordering = ("-id",)
    about = "Writes of committed results to buckets, in order. A rejected write delays later ones of the tenant."
    empty_list = "No writes."

    def get_queryset(self, request: HttpRequest) -> QuerySet[OutboxStep]:
        return OutboxStep.objects.select_related("block", "tenant__bucket").defer("block__meta", "block__files")

    def sections(self, row: OutboxStep) -> Sequence[Section]:
        return [
            Facts(
                title="Step",
                rows=[
                    ("What", row.get_kind_display()),
                    ("Block", show.row_link(row.block)),
                    ("Tenant", show.row_link(row.tenant)),
                    ("Details", row.detail or show.NOTHING),
                    ("Promised", show.age(row.created_at_ms, dialect.clock_ms())),
                    ("Done", self.done(row)),
                    ("Attempts", str(row.attempts)),
                    ("Last error", row.last_error or show.NOTHING),
                ],
            )
        ]

    @display(description="Step")
    def step(self, row: OutboxStep) -> str:
        return row.get_kind_display()

    @display(description="Block")
    def block_cell(self, row: OutboxStep) -> SafeString | str:
        return show.note(row.block.ulid, f"{row.tenant.bucket.name}/{row.tenant.name}")

    @display(description="Done")
    def done(self, row: OutboxStep) -> SafeString | str:
        return show.age(row.done_at_ms, dialect.clock_ms()) if row.done_at_ms else show.badge("not yet", "busy")

    @display(description="Last error")
    def error(self, row: OutboxStep) -> str:
        return row.last_error if row.done_at_ms is None else ""
