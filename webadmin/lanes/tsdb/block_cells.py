"""Table cells and filters of blocks that several pages share."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.safestring import SafeString

from webadmin.adminkit import formatting as show
from webadmin.adminkit.filters import ExactFilter
from webadmin.adminkit.sections import Table
from webadmin.lanes.tsdb.models import Block
from webadmin.lanes.tsdb.states import BlockState

BLOCK_TONES = {
    BlockState.LIVE: "good",
    BlockState.OWNED: "busy",
    BlockState.PENDING: "busy",
    BlockState.SUPERSEDED: "quiet",
    BlockState.MARKED: "quiet",
    BlockState.GONE: "quiet",
}


class TenantFilter(ExactFilter):
    """Filter rows by the name of the tenant."""

    title = parameter_name = "tenant"
    column = "tenant__name"


def blocks_table(title: str, blocks: Sequence[Block]) -> Table:
    """Return a table of blocks."""
    return Table(
        title=title,
        headers=("Block", "Data", "Level", "Series", "Size", "State"),
        rows=[
            (
                show.row_link(block),
                show.time_range_cell(block.min_time_ms, block.max_time_ms),
                str(block.level),
                show.count_text(block.series),
                show.size_text(block.size_bytes),
                block_state(block),
            )
            for block in blocks
        ],
        empty="None any more.",
    )


def block_state(block: Block) -> SafeString:
    """Return the badge of the block's state; blocks excluded from compaction are marked as such."""
    if block.quarantined and block.state == BlockState.LIVE:
        return show.badge("quarantined", "bad", block.quarantined)
    if block.no_compact and block.state == BlockState.LIVE:
        return show.badge("no-compact", "warn", block.no_compact)
    return show.badge(block.state, BLOCK_TONES[BlockState(block.state)], block.reason)
