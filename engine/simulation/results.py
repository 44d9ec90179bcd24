"""What a simulated merge reports: a real result message, whose metadata says just whose data is in each block."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import LithifyError
from engine.protocol.profile_jobs import ProfileMergeResult, ResultBlock
from engine.simulation.ids import added, result_id
from engine.simulation.rows import MemoryBlock, MemoryJob, NewBlock, Share

SHRINK = 0.6
"""Bytes of a result per byte of its sources: symbols and stacks repeat."""


class ResultDoesNotFit(LithifyError):
    """A result is not of the job's sources."""

    code = "result_refused"


def merge(job: str, sources: Sequence[MemoryBlock], token: int) -> ProfileMergeResult:
    """Return what a well-behaved worker would report: one block per tenant of the sources."""
    shares: dict[str, tuple[int, int]] = {}
    parts = 0
    for source in sources:
        for share in source.shares:
            count, digest = shares.get(share.tenant, (0, 0))
            shares[share.tenant] = (count + share.count, added(digest, share.digest))
            parts += 1
    size = int(sum(source.size_bytes for source in sources) * SHRINK) // len(shares) + 1
    first = sources[0].ulid
    blocks = []
    for tenant, (count, digest) in sorted(shares.items()):
        ulid = result_id(first, job=job, token=token, tenant=tenant)
        metadata = f"{tenant} {count} {digest}".encode()
        blocks.append(ResultBlock(id=ulid, key=ulid, size=size, crc32c=0, metadata=metadata))
    return ProfileMergeResult(sources=tuple(source.ulid for source in sources), blocks=tuple(blocks), rows_read=parts)


def accept(job: MemoryJob, result: ProfileMergeResult) -> list[NewBlock]:
    """Return the blocks that would replace the job's sources. Raises ResultDoesNotFit."""
    sources = tuple(block.ulid for block in job.sources)
    if result.sources != sources or not result.blocks:
        raise ResultDoesNotFit(f"job {job.name}: the result is of {len(result.sources)} blocks that are not its")
    created_at_ms = job.sources[0].view.created_at_ms
    return [_new_block(job, block, created_at_ms, sources) for block in result.blocks]


def _new_block(job: MemoryJob, block: ResultBlock, created_at_ms: int, sources: tuple[str, ...]) -> NewBlock:
    tenant, count, digest = block.metadata.decode().split(" ")
    share = Share(tenant, int(count), int(digest))
    return NewBlock(block.id, tenant, job.shard, job.level + 1, block.size, created_at_ms, (share,), sources)
