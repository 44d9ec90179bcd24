"""Validate that a worker's result may replace the sources of its job. No data may be added, moved or lost.

1. The result merges exactly the job's sources.
2. Its blocks are in the job's shard and one level up (a rewrite: on the same level), each of one tenant, under the key
   that follows from these.
3. The (tenant, dataset) pairs of its blocks are those of its sources.
4. Its ids have the time of the job's first source, and its data lies within the time range of the sources.
5. It removed the rows of exactly the delete requests in its specification. A dataset that they match may be missing; if
   they match all datasets, the result may have no block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.core import ulids
from engine.core.errors import LithifyError
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.formats.profile_block.model import DATASET_PROFILES, BlockMeta
from engine.lanes.profiles.jobs import ProfileMergeResult, ResultBlock
from engine.schedule.errors import ResultRefused

DatasetKey = tuple[str, str]
"""Tenant and name of a dataset."""

CRC32C_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionFacts:
    """A job as recorded in the index: its live, owned sources in merge order, and their datasets.

    ``masks`` are the delete commands in its specification, ``masked`` the datasets that they match. The data of the
    sources lies between ``min_time_ms`` and ``max_time_ms``.
    """

    shard: int
    level: int
    sources: tuple[str, ...]
    datasets: frozenset[DatasetKey]
    min_time_ms: int
    max_time_ms: int
    is_rewrite: bool = False
    masks: frozenset[int] = frozenset()
    masked: frozenset[DatasetKey] = frozenset()

    @property
    def result_level(self) -> int:
        return self.level if self.is_rewrite else self.level + 1


def check_result(facts: CompletionFacts, result: ProfileMergeResult) -> tuple[BlockMeta, ...]:
    """Return the metadata of the result's blocks, in order. Raises ResultRefused."""
    if not facts.sources:
        raise ResultRefused("none of its sources belongs to the job any more")
    if result.sources != facts.sources:
        raise ResultRefused(
            f"it merged {len(result.sources)} blocks that are not the job's {len(facts.sources)} sources"
        )
    if frozenset(result.masks) != facts.masks:
        raise ResultRefused("it did not apply the delete requests of its specification; update the node")
    if not result.blocks and not facts.datasets <= facts.masked:
        raise ResultRefused("it has no block to replace the sources")
    metas = tuple(_check_block(facts, block) for block in result.blocks)
    if len({meta.id for meta in metas}) != len(metas):
        raise ResultRefused("two of its blocks have the same id")
    _check_datasets(facts, metas)
    return metas


def _check_block(facts: CompletionFacts, block: ResultBlock) -> BlockMeta:
    try:
        meta = decode_metadata(block.metadata)
        key = block_key(meta.shard, meta.tenant, meta.compaction_level, meta.id)
    except LithifyError as error:
        raise ResultRefused(f"block {block.id!r}: {error}") from error
    promised = {
        "id": (meta.id, block.id),
        "shard": (meta.shard, facts.shard),
        "level": (meta.compaction_level, facts.result_level),
        "key": (block.key, key),
        "the time in its id": (ulids.time_ms(meta.id), ulids.time_ms(facts.sources[0])),
    }
    for what, (found, expected) in promised.items():
        if found != expected:
            raise ResultRefused(f"block {block.id!r}: {what} is {found!r}, expected {expected!r}")
    _check_times(facts, meta)
    if not (meta.metadata_offset < block.size and 0 <= block.crc32c <= CRC32C_MAX):
        raise ResultRefused(f"block {block.id!r}: size {block.size} or checksum {block.crc32c} is impossible")
    return meta


def _check_times(facts: CompletionFacts, meta: BlockMeta) -> None:
    for what, low, high in [
        ("its time", meta.min_time_ms, meta.max_time_ms),
        *((f"the time of dataset {d.name!r}", d.min_time_ms, d.max_time_ms) for d in meta.datasets),
    ]:
        if low > high:
            raise ResultRefused(f"block {meta.id!r}: {what} ends before it starts")
        # Writers that do not know the time write 0.
        if (low and low < facts.min_time_ms) or high > facts.max_time_ms:
            raise ResultRefused(f"block {meta.id!r}: {what} is outside the time range of the sources")


def _check_datasets(facts: CompletionFacts, metas: Sequence[BlockMeta]) -> None:
    foreign = [meta.id for meta in metas if any(dataset.tenant != meta.tenant for dataset in meta.datasets)]
    if foreign:
        raise ResultRefused(f"block {foreign[0]!r} holds data of another tenant")
    found = {(d.tenant, d.name) for meta in metas for d in meta.datasets if d.format == DATASET_PROFILES}
    if missing := facts.datasets - facts.masked - found:
        raise ResultRefused(f"{len(missing)} datasets of the sources are missing, e.g. {min(missing)}")
    if unknown := found - facts.datasets:
        raise ResultRefused(f"{len(unknown)} datasets are in none of the sources, e.g. {min(unknown)}")
