"""Cells and sections of blocks, queue members and tombstones in the admin."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from engine.core.errors import LithifyError
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.model import DATASET_INDEX
from engine.schedule.model import JobState, ParkedKind
from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Branch, Facts, Lineage, Section, Table
from webadmin.lanes.profiles import operator_queries as queries
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block, Dataset
from webadmin.lanes.profiles.states import BlockState

LABEL_SETS_SHOWN_MAX = 20
BLOCKS_SHOWN_MAX = 50
SEGMENT_TENANT = f"all{show.GAP}(segment)"
TONES = {
    BlockState.QUEUED: ("quiet", "waits in the queue of its tenant, shard and level"),
    BlockState.OWNED: ("busy", "is a source of a job"),
    BlockState.PARKED: ("bad", "is excluded from compaction and still read by queries"),
    BlockState.FINAL: ("good", "is of the highest level and is not compacted further"),
    BlockState.REPLACED: ("quiet", "was merged; its results are read instead of it"),
    BlockState.DROPPED: ("quiet", "was past retention, or deleted on request"),
    BlockState.DELETED: ("quiet", "was removed from the index, and its object is deleted"),
}


def state_badge(block: Block) -> SafeString:
    """Return the state with its meaning, or the reason of parking, on hover.

    A source of a parked job is shown with the state of the job: quarantined, evicted or deferred.
    """
    job = block.owner_job if block.state == BlockState.OWNED else None
    if job is not None and job.state == JobState.PARKED:
        return show.badge(job.parked_kind or ParkedKind.EVICTED.value, "bad", job.parked_reason)
    tone, meaning = TONES[BlockState(block.state)]
    return show.badge(block.state, tone, block.parked_reason or meaning)


def state_with_reason(block: Block) -> SafeString:
    """Return the state and, for a parked block, the reason."""
    return show.note(state_badge(block), block.parked_reason) if block.parked_reason else state_badge(block)


def tenant_cell(block: Block) -> SafeString | str:
    """Return a link to the tenant, or a note that a segment belongs to all."""
    return show.row_link(block.tenant, show.name(block.tenant.name)) if block.tenant else SEGMENT_TENANT


def block_table(title: str, blocks: Sequence[Block], *, now_ms: int, empty: str, more: str | SafeString = "") -> Table:
    """Return blocks as a table for a detail page."""
    return Table(
        title=title,
        headers=("Block", "State", "Level", "Shard", "Size", "Arrived"),
        rows=[
            (
                show.row_link(block, show.code(block.ulid)),
                state_with_reason(block),
                block.level,
                block.shard,
                show.size_text(block.size_bytes),
                show.age(block.arrived_at_ms, now_ms, clock=show.COMMAND_TIME),
            )
            for block in blocks
        ],
        empty=empty,
        more=more,
    )


def blocks_of_job_tables(job_id: int, source_count: int, now_ms: int) -> list[Section]:
    """Return the sources and results of a job."""
    sources = queries.sources_of_job(job_id, BLOCKS_SHOWN_MAX)
    missing = source_count - len(sources)
    return [
        block_table(
            f"Sources ({show.count_text(source_count)})",
            sources,
            now_ms=now_ms,
            empty="The index no longer contains its source blocks.",
            more=f"{show.counted(missing, 'more source')} not shown." if sources and missing > 0 else "",
        ),
        block_table(
            "Results", queries.results_of_job(job_id), now_ms=now_ms, empty="None yet: the sources are still live."
        ),
    ]


def tenant_table(tenant: str, now_ms: int) -> Table:
    """Return a table of a tenant's blocks with the latest data."""
    blocks = show.link(show.list_address(Block, tenant=tenant, state="live"), "All live blocks")
    return block_table(
        "Profile blocks with the latest data",
        queries.newest_of_tenant(tenant, BLOCKS_SHOWN_MAX),
        now_ms=now_ms,
        empty="None live: its data may still be in segments, which hold the data of all tenants.",
        more=show.side_by_side(blocks, show.link(show.list_address(LevelQueue, tenant=tenant), "Queues")),
    )


def queue_table(queue: LevelQueue, now_ms: int) -> Table:
    """Return a table of the oldest blocks of a queue."""
    blocks = queries.oldest_in_queue(queue.pk, BLOCKS_SHOWN_MAX)
    missing = queue.block_count - len(blocks)
    everything = show.link(show.list_address(Block, queue__id__exact=queue.pk), "All blocks")
    return block_table(
        "Oldest blocks",
        blocks,
        now_ms=now_ms,
        empty="The queue is empty.",
        more=show.note(everything, f"{show.counted(missing, 'more block')} not shown") if missing > 0 else "",
    )


def block_sections(block: Block, now_ms: int) -> list[Section]:
    """Return the sections of a block's page."""
    return [_facts(block, now_ms), _lineage(block), _datasets(block), _metadata(block)]


def _meaning(block: Block) -> str:
    job = block.owner_job if block.state == BlockState.OWNED else None
    return (job.parked_reason if job else "") or block.parked_reason or TONES[BlockState(block.state)][1]


def _facts(block: Block, now_ms: int) -> Facts:
    crc32c = show.NOTHING if block.crc32c is None else show.code(f"{block.crc32c:08x}")
    removed = block.removed_command_index
    return Facts(
        title="Object",
        rows=[
            ("State", show.note(state_badge(block), _meaning(block))),
            ("Job", _job(block)),
            ("Queue", show.row_link(block.queue)),
            ("Tenant", tenant_cell(block)),
            ("Shard, level", f"shard {block.shard}, level {block.level}"),
            ("Object key", show.code(block.object_key)),
            ("Size", show.hint(show.size_text(block.size_bytes), f"{block.size_bytes} bytes")),
            ("CRC-32C", crc32c),
            ("Data from, to", show.time_range(block.min_time_ms, block.max_time_ms)),
            ("Created (time in the id)", f"{show.moment_text(block.created_at_ms)} UTC"),
            ("Arrived", show.age(block.arrived_at_ms, now_ms, clock=show.COMMAND_TIME)),
            ("Added by command", show.command_link(block.added_command_index)),
            ("Removed by command", show.NOTHING if removed is None else show.command_link(removed)),
        ],
    )


def _job(block: Block) -> SafeString | str:
    if block.owner_job is None:
        return show.NOTHING
    done = "merges it" if block.state == BlockState.OWNED else "merged it"
    return show.note(show.row_link(block.owner_job, show.code(block.owner_job.name)), done)


def _lineage(block: Block) -> Lineage:
    no_sources = "None: segments are written by segment writers."
    if block.level:
        no_sources = "The sources are not in the index: the block was imported, or their rows were deleted."
    no_results = "Not merged yet."
    if block.state == BlockState.FINAL:
        no_results = "None: the block is of the highest level."
    return Lineage(
        title="Lineage",
        sources=_branch(queries.ancestry(block)),
        results=_branch(queries.progeny(block)),
        no_sources=no_sources,
        no_results=no_results,
    )


def _branch(relative: queries.Relative) -> Branch:
    block = relative.block
    label = format_html(
        '{} <span class="lt-more-inline">level {} · {} · {}</span> {}',
        show.row_link(block, show.code(block.ulid)),
        block.level,
        block.tenant or "all tenants",
        show.size_text(block.size_bytes),
        state_badge(block),
    )
    return Branch(
        label=label, branches=[_branch(further) for further in relative.relatives], left_out=relative.left_out
    )


def _datasets(block: Block) -> Table:
    datasets = queries.datasets_of(block)
    missing = block.dataset_count - len(datasets)
    return Table(
        title=f"Datasets ({show.count_text(block.dataset_count)})",
        headers=("Service", "Tenant", "Data from, to", "Size", "Label sets"),
        rows=[_dataset_row(dataset) for dataset in datasets],
        empty="No dataset rows: the index knows this block by its metadata only.",
        more=f"{show.counted(missing, 'more dataset')} not shown." if datasets and missing > 0 else "",
    )


def _dataset_row(dataset: Dataset) -> Sequence[object]:
    kind = "dataset index" if dataset.format == DATASET_INDEX else ""
    return (
        show.note(str(dataset.name), kind) if kind else dataset.name,
        show.row_link(dataset.tenant),
        show.time_range(dataset.min_time_ms, dataset.max_time_ms),
        show.size_text(dataset.size_bytes),
        _label_sets(dataset.label_sets.label_sets),
    )


def _label_sets(label_sets: list[list[list[str]]]) -> SafeString:
    texts = [
        ", ".join(f"{name}={value}" for name, value in label_set) for label_set in label_sets[:LABEL_SETS_SHOWN_MAX]
    ]
    if len(label_sets) > LABEL_SETS_SHOWN_MAX:
        texts.append(f"… {len(label_sets) - LABEL_SETS_SHOWN_MAX} more")
    return format_html(
        "<details><summary>{}</summary>{}</details>",
        show.counted(len(label_sets), "label set"),
        format_html_join("", '<span class="lt-labels">{}</span>', ((text,) for text in texts)),
    )


def _metadata(block: Block) -> Facts:
    data = bytes(block.metadata)
    try:
        meta = decode_metadata(data)
    except LithifyError as error:
        return Facts(title="Metadata", rows=[("Not readable", show.note(show.badge("damaged", "bad"), str(error)))])
    return Facts(
        title="Metadata",
        rows=[
            ("Written by", meta.created_by or show.NOTHING),
            ("Id in the metadata", show.code(meta.id)),
            ("Format version", meta.format_version),
            ("Datasets", show.count_text(len(meta.datasets))),
            ("Strings", show.count_text(len(meta.string_table))),
            ("Starts at byte", show.count_text(meta.metadata_offset)),
            ("Encoded", show.size_text(len(data))),
        ],
    )
