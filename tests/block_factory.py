"""Block metadata for tests, and results as a well-behaved merge would report them; no objects are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.core import ulids
from engine.core.block_ids import result_ids
from engine.formats.profile_block.container.metadata import decode_metadata, encode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.formats.profile_block.model import DATASET_INDEX, DATASET_PROFILES, BlockMeta, DatasetMeta
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec, ResultBlock
from engine.lanes.profiles.merge.masks import masks_on

SECTION_BYTES = 100


def ulid(time_ms: int, number: int = 0) -> str:
    """Return the id with this time and this number as entropy."""
    return ulids.make(time_ms, number.to_bytes(10, "big"))


def block_meta(
    block_id: str,
    *,
    shard: int = 1,
    level: int = 0,
    tenant: str = "",
    datasets: Iterable[tuple[str, str]] = (("acme", "web"),),
    size: int = 0,
    with_index: bool = False,
) -> BlockMeta:
    """Return metadata of a block with these (tenant, service) datasets, each of three small sections."""
    time_ms = ulids.time_ms(block_id)
    rows: list[DatasetMeta] = []
    for place, (owner, name) in enumerate(sorted(datasets)):
        start = place * SECTION_BYTES
        labels = ((("service_name", name), ("__profile_type__", "cpu")),)
        rows.append(
            DatasetMeta(
                tenant=owner,
                name=name,
                min_time_ms=time_ms,
                max_time_ms=time_ms + 500,
                table_of_contents=(start, start + 10, start + 20),
                size=SECTION_BYTES,
                labels=labels,
                format=DATASET_PROFILES,
            )
        )
    if with_index:
        end = len(rows) * SECTION_BYTES
        rows.append(
            DatasetMeta(
                tenant=tenant,
                name="",
                min_time_ms=time_ms,
                max_time_ms=time_ms + 500,
                table_of_contents=(end,),
                size=SECTION_BYTES,
                format=DATASET_INDEX,
            )
        )
    strings = {"", tenant, *(text for row in rows for text in (row.tenant, row.name))}
    strings |= {text for row in rows for label_set in row.labels for label in label_set for text in label}
    offset = len(rows) * SECTION_BYTES
    return BlockMeta(
        id=block_id,
        tenant=tenant,
        shard=shard,
        compaction_level=level,
        min_time_ms=time_ms,
        max_time_ms=time_ms + 500,
        datasets=tuple(rows),
        string_table=tuple(sorted(strings)),
        size=size or offset + 300,
        metadata_offset=offset,
    )


def merged(spec: ProfileMergeSpec) -> ProfileMergeResult:
    """Return what a correct merge of this job would report."""
    return merged_from(spec, [decode_metadata(source.metadata) for source in spec.sources])


def merged_from(spec: ProfileMergeSpec, sources: Sequence[BlockMeta]) -> ProfileMergeResult:
    """Return what a correct merge of this job would report if this were the metadata of its sources."""
    datasets = {
        (d.tenant, d.name)
        for source, meta in zip(spec.sources, sources, strict=True)
        for d in meta.datasets
        if d.format == DATASET_PROFILES and d.name
        if not any(mask.is_total for mask in masks_on(d, source.masks_applied, spec.masks))
    }
    tenants = sorted({tenant for tenant, _ in datasets})
    ids = result_ids([(meta.id, meta.compaction_level) for meta in sources], len(tenants), spec.fence)
    blocks = [
        result_block(
            block_meta(
                block_id,
                shard=spec.shard,
                level=spec.result_level,
                tenant=tenant,
                datasets=[pair for pair in datasets if pair[0] == tenant],
                with_index=True,
            )
        )
        for block_id, tenant in zip(ids, tenants, strict=True)
    ]
    return ProfileMergeResult(
        sources=tuple(source.id for source in spec.sources),
        blocks=tuple(blocks),
        rows_read=7,
        masks=tuple(mask.index for mask in spec.masks),
    )


def result_block(meta: BlockMeta) -> ResultBlock:
    """Return the report on one written block."""
    key = block_key(meta.shard, meta.tenant, meta.compaction_level, meta.id)
    return ResultBlock(id=meta.id, key=key, size=meta.size, crc32c=0xABCD, metadata=encode_metadata(meta))


def segment_ids(time_ms: int, count: int, *, step_ms: int = 500, first: int = 0) -> Sequence[str]:
    """Return ids of segments that one writer flushed, one every ``step_ms``."""
    return [ulid(time_ms + number * step_ms, first + number) for number in range(count)]
