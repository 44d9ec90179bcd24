"""Results of simulated merges: valid result messages whose metadata holds only the owners of the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.core.errors import LithifyError
from engine.lanes.profiles.jobs import DeleteMask, ProfileMergeResult, ResultBlock
from engine.simulation.memory.ids import added, result_id
from engine.simulation.memory.rows import DatasetKey, MemoryBlock, MemoryJob, NewBlock, Share

SHRINK = 0.6
"""Bytes of a result per byte of its sources: symbols and stacks repeat."""


class ResultDoesNotFit(LithifyError):
    """A result does not match the job's sources."""

    code = "result_refused"


def merge(job: str, sources: Sequence[MemoryBlock], token: int, masks: Sequence[DeleteMask] = ()) -> ProfileMergeResult:
    """Return the result of a correct worker: one block per tenant of the sources, with masks applied."""
    shares: dict[str, dict[str, tuple[int, int]]] = {}
    parts = 0
    for source in sources:
        for share in source.shares:
            if masks and is_masked(masks, source, share):
                continue
            of_tenant = shares.setdefault(share.tenant, {})
            count, digest = of_tenant.get(share.service, (0, 0))
            of_tenant[share.service] = (count + share.count, added(digest, share.digest))
            parts += 1
    size = int(sum([source.size_bytes for source in sources]) * SHRINK) // max(1, len(shares)) + 1
    first = sources[0].ulid
    blocks = []
    for tenant, services in sorted(shares.items()):
        ulid = result_id(first, job=job, token=token, tenant=tenant)
        words = [f"{name} {count} {digest}" for name, (count, digest) in sorted(services.items())]
        metadata = ";".join([tenant, *words]).encode()
        blocks.append(ResultBlock(id=ulid, key=ulid, size=size, crc32c=0, metadata=metadata))
    return ProfileMergeResult(
        sources=tuple([source.ulid for source in sources]),
        blocks=tuple(blocks),
        rows_read=parts,
        masks=tuple([mask.index for mask in masks]),
    )


def is_masked(masks: Iterable[DeleteMask], source: MemoryBlock, share: Share) -> bool:
    """Return whether a merge removes this part of a source."""
    return any(
        mask.tenant == share.tenant and mask.service in ("", share.service) and mask.index > source.masks_applied
        for mask in masks
    )


def masks_about(masks: Iterable[DeleteMask], sources: Iterable[MemoryBlock]) -> tuple[DeleteMask, ...]:
    """Return the masks that a merge of these blocks has to apply, by index."""
    return tuple(mask for mask in masks if any(is_about(mask, block) for block in sources))


def is_about(mask: DeleteMask, block: MemoryBlock) -> bool:
    """Return whether a block holds data that a delete request matches."""
    return mask.index > block.masks_applied and any(
        share.tenant == mask.tenant and mask.service in ("", share.service) for share in block.shares
    )


def accept(job: MemoryJob, result: ProfileMergeResult) -> list[NewBlock]:
    """Return the blocks that replace the job's sources. Raises ResultDoesNotFit."""
    sources = tuple([block.ulid for block in job.sources])
    if result.sources != sources:
        raise ResultDoesNotFit(f"job {job.name}: the result is of {len(result.sources)} blocks that are not its")
    if result.masks != tuple([mask.index for mask in job.masks]):
        raise ResultDoesNotFit(f"job {job.name}: the result did not apply the job's delete masks")
    created_at_ms = job.sources[0].view.created_at_ms
    max_time_ms = max([block.max_time_ms for block in job.sources])
    blocks = [_new_block(job, block, (created_at_ms, max_time_ms), sources) for block in result.blocks]
    _check_datasets(job, blocks)
    return blocks


def _new_block(job: MemoryJob, block: ResultBlock, times: tuple[int, int], sources: tuple[str, ...]) -> NewBlock:
    tenant, *words = block.metadata.decode().split(";")
    shares = []
    for word in words:
        service, count, digest = word.split(" ")
        shares.append(Share(tenant, int(count), int(digest), service))
    level = job.level if job.is_rewrite else job.level + 1
    return NewBlock(block.id, tenant, job.shard, level, block.size, times[0], tuple(shares), sources, times[1])


def _check_datasets(job: MemoryJob, blocks: Sequence[NewBlock]) -> None:
    """Check that no dataset is new and that only masked datasets are missing."""
    wanted: set[DatasetKey] = {(share.tenant, share.service) for block in job.sources for share in block.shares}
    found: set[DatasetKey] = {(share.tenant, share.service) for block in blocks for share in block.shares}
    if found == wanted:
        return
    masked = {
        (share.tenant, share.service)
        for block in job.sources
        for share in block.shares
        if is_masked(job.masks, block, share)
    }
    if not wanted - masked <= found <= wanted:
        raise ResultDoesNotFit(f"job {job.name}: the result has {len(found)} datasets, its sources {len(wanted)}")
