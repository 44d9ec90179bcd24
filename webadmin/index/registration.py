"""What it takes to register a block, and which metadata the index refuses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from engine.errors import LithifyError
from engine.planning.model import QueueKey
from engine.profiles import ulids
from engine.profiles.metadata import encode_metadata
from engine.profiles.model import COMPACTION_LEVEL_MAX, BlockMeta
from engine.profiles.object_names import SHARD_MAX, block_key, check_tenant
from engine.protocol.profile_jobs import KIND
from webadmin.index.errors import BlockRefused
from webadmin.index.models import DATASET_NAME_MAX, OBJECT_KEY_MAX

LEVEL_MAX = 100
SIZE_MAX = (1 << 63) - 1
PARTITION_MS = 6 * 3600 * 1000
LEDGER_MS = 7 * 24 * 3600 * 1000
"""How long an accepted id is remembered; ids that are older by their own time are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRegistration:
    """A block to register. ``metadata`` is the protobuf form of ``meta``; ``crc32c`` is None if nobody computed it."""

    meta: BlockMeta
    metadata: bytes
    object_key: str
    size_bytes: int
    crc32c: int | None = None

    @classmethod
    def of(cls, meta: BlockMeta, *, object_key: str | None = None, crc32c: int | None = None) -> BlockRegistration:
        """Register ``meta.size`` bytes under the key that follows from the metadata, or under another one."""
        return cls(
            meta=meta,
            metadata=encode_metadata(meta),
            object_key=object_key or block_key(meta.shard, meta.tenant, meta.compaction_level, meta.id),
            size_bytes=meta.size,
            crc32c=crc32c,
        )

    @property
    def created_at_ms(self) -> int:
        return ulids.time_ms(self.meta.id)

    @property
    def partition_start_ms(self) -> int:
        return self.created_at_ms - self.created_at_ms % PARTITION_MS

    @property
    def is_final(self) -> bool:
        return self.meta.compaction_level >= COMPACTION_LEVEL_MAX

    def queue_key(self) -> QueueKey:
        """Return the queue in which the block waits, unless it is final."""
        return (KIND, self.meta.tenant, self.meta.shard, self.meta.compaction_level)

    def content_digest(self) -> str:
        """Return what tells a repeated registration from a different block under the same id."""
        return hashlib.sha256(self.size_bytes.to_bytes(8, "big") + self.metadata).hexdigest()


def check_registration(registration: BlockRegistration, *, remembered_from_ms: int | None) -> None:
    """Raise BlockRefused if the index cannot hold this block, or could not tell whether it was here before.

    ``remembered_from_ms`` is the time in the oldest id that the ledger surely remembers, None to accept any age.
    """
    meta = registration.meta
    try:
        problem = next(_problems(registration), None)
    except LithifyError as error:
        raise BlockRefused(f"block {meta.id!r}: {error}") from error
    if problem:
        raise BlockRefused(f"block {meta.id!r}: {problem}")
    if remembered_from_ms is not None and registration.created_at_ms < remembered_from_ms:
        raise BlockRefused(f"block {meta.id!r}: its id is more than 7 days old; use manage.py import_blocks")


def _problems(registration: BlockRegistration) -> Iterator[str]:
    meta = registration.meta
    ulids.parse(meta.id)
    if not 0 <= meta.shard <= SHARD_MAX:
        yield f"shard {meta.shard} is not an unsigned 32-bit number"
    if not 0 <= meta.compaction_level <= LEVEL_MAX:
        yield f"level {meta.compaction_level} is above {LEVEL_MAX}"
    if (meta.compaction_level == 0) != (meta.tenant == ""):
        yield f"level {meta.compaction_level} with tenant {meta.tenant!r}: segments have none, blocks have one"
    if meta.tenant:
        check_tenant(meta.tenant)
    if not 0 < registration.size_bytes <= SIZE_MAX:
        yield f"an object of {registration.size_bytes} bytes"
    if len(registration.object_key) > OBJECT_KEY_MAX:
        yield f"its key is longer than {OBJECT_KEY_MAX} characters"
    if any("\0" in text for text in (*meta.string_table, registration.object_key)):
        yield "a name contains NUL"
    if meta.min_time_ms > meta.max_time_ms:
        yield "its time ends before it starts"
    yield from _dataset_problems(meta, registration.size_bytes)


def _dataset_problems(meta: BlockMeta, size_bytes: int) -> Iterator[str]:
    if not meta.datasets:
        yield "it has no datasets"
    for position, dataset in enumerate(meta.datasets):
        check_tenant(dataset.tenant)
        if meta.tenant and dataset.tenant != meta.tenant:
            yield f"dataset {position} belongs to tenant {dataset.tenant!r}, the block to {meta.tenant!r}"
        if len(dataset.name) > DATASET_NAME_MAX:
            yield f"dataset {position} has a name of more than {DATASET_NAME_MAX} characters"
        if dataset.min_time_ms > dataset.max_time_ms:
            yield f"dataset {position} ends before it starts"
        if dataset.table_of_contents[0] + dataset.size > size_bytes:
            yield f"dataset {position} ends behind the object's end"
