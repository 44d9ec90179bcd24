"""Run the merge of a job: from its specification to result blocks in the store.

The merge has three steps, which Spark can distribute: ``plan_outputs`` assigns datasets to blocks, ``merge_dataset``
merges one dataset, ``write_results`` writes the blocks. ``run`` executes all three in one process and writes the same
bytes. Nothing is written before every dataset is merged, so a bad source leaves no partial result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from engine.core.block_ids import result_ids
from engine.core.errors import BadObject, MergeRefused
from engine.formats.profile_block.container.container import DATASET_INDEX_LABELS, BlockWriter, ObjectReader
from engine.formats.profile_block.container.metadata import decode_metadata, encode_metadata, label_strings
from engine.formats.profile_block.container.object_names import block_key
from engine.formats.profile_block.merge_model import DatasetSource, MergedDataset, Scratch, Selection
from engine.formats.profile_block.model import DATASET_PROFILES, BlockMeta, DatasetMeta, Labels
from engine.lanes.profiles.jobs import (
    DeleteMask,
    ProfileMergeResult,
    ProfileMergeSpec,
    ResultBlock,
    SourceObject,
)
from engine.lanes.profiles.merge.dataset_merge import merge_rows
from engine.lanes.profiles.merge.masks import MaskedSource, all_series, masked_sources, masks_on
from engine.lanes.profiles.merge.result_size import bytes_in_block, cut_by_size, distribute_parts, room_for_datasets
from engine.lanes.profiles.merge.series_cut import estimate_bytes
from engine.lanes.profiles.merge.series_reach import cut_dataset
from engine.storage.model import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSource:
    """A dataset of a source object, and the masks that remove rows from it."""

    key: str
    object_size: int
    dataset: DatasetMeta
    masks: tuple[DeleteMask, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlan:
    """One dataset of a result: its sources in order and their combined metadata.

    ``bytes_max`` is its maximum size in a block (0: unlimited).
    """

    tenant: str
    name: str
    labels: tuple[Labels, ...]
    min_time_ms: int
    max_time_ms: int
    sources: tuple[PlannedSource, ...]
    bytes_max: int = 0

    @property
    def source_bytes(self) -> int:
        """Return the bytes of all source datasets."""
        return sum(source.dataset.size for source in self.sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlan:
    """The result of one tenant: its datasets by name, and the first strings of its metadata.

    ``bytes_max`` is the maximum size of all datasets of a block (0: unlimited).
    """

    tenant: str
    shard: int
    level: int
    string_table: tuple[str, ...]
    datasets: tuple[DatasetPlan, ...]
    bytes_max: int = 0


def run(
    spec: ProfileMergeSpec,
    store: ObjectStore,
    *,
    scratch: Scratch,
    cancelled: Callable[[], bool] = lambda: False,
) -> ProfileMergeResult:
    """Run a whole merge in this process.

    Raises BadObject or StorageError for a source that cannot be read, MergeRefused for sources that do not match the
    job, and MergeCancelled. Scratch files are removed in every case.
    """
    outputs = plan_outputs(spec)
    merged: list[list[list[MergedDataset]]] = [[] for _ in outputs]
    try:
        for output, datasets in zip(outputs, merged, strict=True):
            for plan in output.datasets:
                parts = merge_dataset(
                    plan, store, budget_bytes=spec.task_memory_bytes, scratch=scratch, cancelled=cancelled
                )
                datasets.append(parts)
        return write_results(spec, outputs, merged, store)
    finally:
        for datasets in merged:
            for parts in datasets:
                _close(parts)


def plan_outputs(spec: ProfileMergeSpec) -> tuple[OutputPlan, ...]:
    """Return one output per tenant, in the order of their first occurrence in the sources, datasets by name.

    Datasets that a mask removes completely are not planned; if none remains there is no output.

    Raises MergeRefused if there are no sources or if they differ from the job in shard, tenant or level, and BadObject
    with the source whose metadata cannot be read.
    """
    if not spec.sources:
        raise MergeRefused("a merge needs at least one source")
    blocks = [_metadata(spec, source) for source in spec.sources]
    level = max(block.compaction_level for block in blocks)
    if level != spec.level:
        raise MergeRefused(f"job {spec.job} expects sources of level {spec.level}, found level {level}")
    found: dict[str, dict[str, list[PlannedSource]]] = {}
    for source, block in zip(spec.sources, blocks, strict=True):
        for dataset in block.datasets:
            masks = masks_on(dataset, source.masks_applied, spec.masks)
            if dataset.format != DATASET_PROFILES or not dataset.name or any(mask.is_total for mask in masks):
                continue
            planned = PlannedSource(key=source.key, object_size=source.size, dataset=dataset, masks=masks)
            found.setdefault(dataset.tenant, {}).setdefault(dataset.name, []).append(planned)
    return tuple(_output_plan(spec, blocks, tenant, datasets) for tenant, datasets in found.items())


def merge_dataset(
    plan: DatasetPlan,
    store: ObjectStore,
    *,
    budget_bytes: int,
    scratch: Scratch,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[MergedDataset]:
    """Merge one dataset and return its parts.

    There is one part if the estimate fits ``budget_bytes`` and the result fits the plan's ``bytes_max``; otherwise the
    dataset is split by series.
    """
    opened = [_open(store, source) for source in plan.sources]
    with masked_sources(opened, [source.masks for source in plan.sources], scratch, cancelled) as masked:
        sources = [each.source for each in masked]
        try:
            fits = estimate_bytes(sources) <= budget_bytes
        except BadObject as error:
            raise error.in_object(error.object_name or plan.sources[0].key) from error
        cuts = [None] if fits else cut_dataset(sources, budget_bytes, cancelled)
        parts: list[MergedDataset] = []
        waiting = [_selection(masked, cut) for cut in reversed(cuts)]
        try:
            while waiting:
                selection = waiting.pop()
                part = merge_rows(sources, selection=selection, scratch=scratch, cancelled=cancelled)
                parts.append(part)
                size = bytes_in_block(part, plan.labels)
                if 0 < plan.bytes_max < size and len(part.series) > 1:
                    waiting += reversed(cut_by_size(sources, selection, -(-size // plan.bytes_max)))
                    parts.pop().close()
        except BaseException:
            _close(parts)
            raise
        return parts


def _selection(masked: Sequence[MaskedSource], cut: Sequence[set[int]] | None) -> Selection:
    """Return the series to keep: those of the part that no mask removes."""
    if all(each.kept is None for each in masked):
        return cut
    wholes = [each.kept if each.kept is not None else all_series(each.source) for each in masked]
    return wholes if cut is None else [part & whole for part, whole in zip(cut, wholes, strict=True)]


def write_results(
    spec: ProfileMergeSpec,
    outputs: Sequence[OutputPlan],
    merged: Sequence[Sequence[Sequence[MergedDataset]]],
    store: ObjectStore,
) -> ProfileMergeResult:
    """Write the result blocks; ``merged[output][dataset]`` holds the parts of a dataset.

    Part k of every dataset of a tenant goes to the tenant's block k, or to several blocks if that would be too large.
    First blocks get the first ids, additional blocks the ids after them, tenant by tenant. Datasets without rows and
    blocks without datasets are omitted.
    """
    distributed = [_distribute_blocks(output, datasets) for output, datasets in zip(outputs, merged, strict=True)]
    blocks = [(output, of_tenant[0]) for output, of_tenant in zip(outputs, distributed, strict=True)]
    for output, of_tenant in zip(outputs, distributed, strict=True):
        blocks += [(output, parts) for parts in of_tenant[1:]]
    levels = [decode_metadata(source.metadata).compaction_level for source in spec.sources]
    sources = [(source.id, level) for source, level in zip(spec.sources, levels, strict=True)]
    ids = result_ids(sources, len(blocks), spec.fence)
    written = [
        _write_block(block_id, output, parts, store) for block_id, (output, parts) in zip(ids, blocks, strict=True)
    ]
    every_part = [part for datasets in merged for parts in datasets for part in parts]
    return ProfileMergeResult(
        sources=tuple(source.id for source in spec.sources),
        blocks=tuple(block for block in written if block is not None),
        rows_read=sum(part.rows_read for part in every_part),
        rows_dropped=sum(part.rows_dropped for part in every_part),
        bytes_read=sum(part.bytes_read for part in every_part),
        masks=tuple(mask.index for mask in spec.masks),
    )


def _distribute_blocks(
    output: OutputPlan, datasets: Sequence[Sequence[MergedDataset]]
) -> list[list[MergedDataset | None]]:
    """Return the blocks of a tenant, each as a list of the part of every dataset (None: no part)."""
    blocks: list[list[MergedDataset | None]] = []
    for k in range(max(map(len, datasets), default=1) or 1):
        parts = [of_dataset[k] if k < len(of_dataset) else None for of_dataset in datasets]
        sizes = [
            bytes_in_block(part, plan.labels) if part and part.row_count else 0
            for plan, part in zip(output.datasets, parts, strict=True)
        ]
        for positions in distribute_parts(sizes, output.bytes_max):
            blocks.append([part if position in positions else None for position, part in enumerate(parts)])
    return blocks


def _metadata(spec: ProfileMergeSpec, source: SourceObject) -> BlockMeta:
    try:
        block = replace(decode_metadata(source.metadata), size=source.size)
    except BadObject as error:
        raise error.in_object(source.key) from error
    shard = spec.shard if source.shard is None else source.shard
    if block.shard != shard:
        raise MergeRefused(f"job {spec.job} expects shard {shard}, {source.key} is in shard {block.shard}")
    tenants = {block.tenant, *(dataset.tenant for dataset in block.datasets)}
    if spec.level > 0 and tenants != {spec.tenant}:
        raise MergeRefused(f"job {spec.job} is for tenant {spec.tenant!r}, {source.key} holds {sorted(tenants)}")
    return block


def _output_plan(
    spec: ProfileMergeSpec, blocks: Sequence[BlockMeta], tenant: str, datasets: dict[str, list[PlannedSource]]
) -> OutputPlan:
    plans = [_dataset_plan(tenant, name, sources) for name, sources in sorted(datasets.items(), key=_bytewise)]
    strings = dict.fromkeys(["", tenant])
    for block in blocks:
        for dataset in block.datasets:
            if dataset.tenant == tenant and dataset.format == DATASET_PROFILES and dataset.name in datasets:
                strings.update(dict.fromkeys((dataset.name, tenant, *label_strings(dataset.labels))))
    strings.update(dict.fromkeys(label_strings(DATASET_INDEX_LABELS)))
    room = room_for_datasets(spec.result_bytes_max, strings)
    return OutputPlan(
        tenant=tenant,
        shard=spec.shard,
        level=spec.result_level,
        string_table=tuple(strings),
        datasets=tuple(replace(plan, bytes_max=room) for plan in plans),
        bytes_max=room,
    )


def _bytewise(item: tuple[str, object]) -> bytes:
    return item[0].encode()


def _dataset_plan(tenant: str, name: str, sources: Sequence[PlannedSource]) -> DatasetPlan:
    datasets = [source.dataset for source in sources]
    label_sets = dict.fromkeys(label_set for dataset in datasets for label_set in dataset.labels)
    return DatasetPlan(
        tenant=tenant,
        name=name,
        labels=tuple(label_sets),
        min_time_ms=min((dataset.min_time_ms for dataset in datasets if dataset.min_time_ms), default=0),
        max_time_ms=max((dataset.max_time_ms for dataset in datasets if dataset.max_time_ms), default=0),
        sources=tuple(sources),
    )


def _open(store: ObjectStore, source: PlannedSource) -> DatasetSource:
    return ObjectReader(store, source.key, source.object_size).dataset_source(source.dataset)


def _write_block(
    block_id: str, output: OutputPlan, parts: Iterable[MergedDataset | None], store: ObjectStore
) -> ResultBlock | None:
    filled = [(plan, part) for plan, part in zip(output.datasets, parts, strict=True) if part and part.row_count]
    if not filled:
        return None
    key = block_key(output.shard, output.tenant, output.level, block_id)
    with store.open_writer(key) as target:
        writer = BlockWriter(target)
        for plan, part in filled:
            writer.add_dataset(
                tenant=plan.tenant,
                name=plan.name,
                labels=plan.labels,
                min_time_ms=plan.min_time_ms,
                max_time_ms=plan.max_time_ms,
                sections=part.sections,
                series=part.series,
            )
        writer.add_dataset_index(output.tenant)
        meta = writer.finish(
            id=block_id,
            tenant=output.tenant,
            shard=output.shard,
            compaction_level=output.level,
            string_table=output.string_table,
        )
    return ResultBlock(id=block_id, key=key, size=meta.size, crc32c=writer.crc32c, metadata=encode_metadata(meta))


def _close(parts: Iterable[MergedDataset]) -> None:
    for part in parts:
        part.close()
