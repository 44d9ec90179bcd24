"""Registration of a block, and validation of its metadata."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from engine.core import ulids
from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import SHARD_MAX, block_key, check_tenant
from engine.formats.profile_block.model import COMPACTION_LEVEL_MAX, BlockMeta, Labels
from engine.lanes.profiles.jobs import KIND
from engine.lanes.profiles.plan.model import QueueKey
from webadmin.lanes.profiles.errors import BlockRefused
from webadmin.lanes.profiles.models import DATASET_NAME_MAX, OBJECT_KEY_MAX

LEVEL_MAX = 100
SIZE_MAX = 1 << 40
"""Maximum size of a block in bytes: sums of sizes in queues and statistics must stay below 2^63."""
PARTITION_MS = 6 * 3600 * 1000
LEDGER_MS = 7 * 24 * 3600 * 1000
"""How long an accepted id is remembered; older ids, by the time in them, are refused."""
CLOCK_ERROR_MS = 3600 * 1000
"""How far a writer's clock may be ahead of the database's, in milliseconds."""
DATA_AHEAD_MS = 24 * 3600 * 1000
"""How far the time of data may be in the future: profiles have the time of the machine that recorded them."""
LABEL_TEXT_MAX = 1 << 20
"""Maximum length of a block's expanded label texts: a message can refer to a long text a million times."""
CLOCK_CODES = {"id_too_old", "id_in_future", "data_in_future"}
"""Refusals that depend on the present time: a block that was accepted earlier is still a duplicate."""
DATASETS_MAX = 100_000
"""Maximum number of datasets of a block, each of which is a row; far more than writers need for half a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRegistration:
    """A block to register. ``metadata`` is the protobuf form of ``meta``; ``crc32c`` is None if unknown.

    ``masks_applied`` is the index of the last delete command that its bytes obey.
    """

    meta: BlockMeta
    metadata: bytes
    object_key: str
    size_bytes: int
    crc32c: int | None = None
    masks_applied: int = 0

    @classmethod
    def of(cls, meta: BlockMeta, *, object_key: str | None = None, crc32c: int | None = None) -> BlockRegistration:
        """Return the registration of ``meta.size`` bytes under ``object_key`` (default: derived from ``meta``)."""
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
        """Return the queue of the block; not used for final blocks."""
        return (KIND, self.meta.tenant, self.meta.shard, self.meta.compaction_level)

    def content_digest(self) -> str:
        """Return the digest that distinguishes a repeated registration from a different block with the same id."""
        return hashlib.sha256(self.size_bytes.to_bytes(8, "big") + self.metadata).hexdigest()


def check_registration(
    registration: BlockRegistration, *, remembered_from_ms: int | None, now_ms: int | None = None
) -> None:
    """Raise BlockRefused if the block is invalid or if the ledger cannot tell whether it is a duplicate.

    ``remembered_from_ms`` is the time in the oldest id that the ledger surely remembers, None to accept any age. With
    ``now_ms`` (wall-clock time) ids and data from the future are refused too, since they would never expire; and
    datasets beyond their block's time, which old blocks of other writers may have.
    """
    meta = registration.meta
    try:
        problem = next(_problems(registration), None)
    except BadBlockName as error:
        raise BlockRefused(
            f"block {meta.id!r}: {error}", "bad_id" if error.name == meta.id else "bad_tenant"
        ) from error
    if problem is None and remembered_from_ms is not None and registration.created_at_ms < remembered_from_ms:
        problem = ("id_too_old", "its id is more than 7 days old; use manage.py import_blocks")
    if problem is None and now_ms is not None:
        problem = _time_problem(registration, now_ms)
    if problem:
        raise BlockRefused(f"block {meta.id!r}: {problem[1]}", problem[0])


Problem = tuple[str, str]
"""A stable code, and a message."""


def _time_problem(registration: BlockRegistration, now_ms: int) -> Problem | None:
    if registration.created_at_ms > now_ms + CLOCK_ERROR_MS:
        return "id_in_future", "the time in its id has not come; set the writer's clock"
    meta = registration.meta
    if meta.max_time_ms > now_ms + DATA_AHEAD_MS:
        return "data_in_future", "its data is more than a day ahead of the clock"
    if any(d.min_time_ms < meta.min_time_ms or d.max_time_ms > meta.max_time_ms for d in meta.datasets):
        return "bad_time", "a dataset covers time that the block does not"
    return None


def _problems(registration: BlockRegistration) -> Iterator[Problem]:
    meta = registration.meta
    ulids.parse(meta.id)
    if not 0 <= meta.shard <= SHARD_MAX:
        yield "bad_shard", f"shard {meta.shard} is not an unsigned 32-bit number"
    if not 0 <= meta.compaction_level <= LEVEL_MAX:
        yield "bad_level", f"level {meta.compaction_level} is above {LEVEL_MAX}"
    if (meta.compaction_level == 0) != (meta.tenant == ""):
        reason = "segments have none, blocks have one"
        yield "bad_tenant", f"level {meta.compaction_level} with tenant {meta.tenant!r}: {reason}"
    if meta.tenant:
        check_tenant(meta.tenant)
    if not 0 < registration.size_bytes <= SIZE_MAX:
        yield "bad_size", f"an object of {registration.size_bytes} bytes"
    if len(registration.object_key) > OBJECT_KEY_MAX:
        yield "bad_key", f"its key is longer than {OBJECT_KEY_MAX} characters"
    if any("\0" in text for text in (*meta.string_table, registration.object_key)):
        yield "bad_name", "a name contains NUL"
    if not 0 <= meta.min_time_ms <= meta.max_time_ms:
        yield "bad_time", "its time starts before 1970 or ends before it starts"
    yield from _dataset_problems(meta, registration.size_bytes)


def _dataset_problems(meta: BlockMeta, size_bytes: int) -> Iterator[Problem]:
    if not meta.datasets:
        yield "bad_dataset", "it has no datasets"
    if len(meta.datasets) > DATASETS_MAX:
        yield "bad_dataset", f"it has more than {DATASETS_MAX} datasets"
    for tenant in {dataset.tenant for dataset in meta.datasets}:
        check_tenant(tenant)
        if meta.tenant and tenant != meta.tenant:
            yield "bad_tenant", f"a dataset belongs to tenant {tenant!r}, the block to {meta.tenant!r}"
    for position, dataset in enumerate(meta.datasets):
        if label_text_size(dataset.labels) > LABEL_TEXT_MAX:
            yield "bad_dataset", f"the labels of dataset {position} have more than {LABEL_TEXT_MAX} characters"
        if len(dataset.name) > DATASET_NAME_MAX:
            yield "bad_name", f"dataset {position} has a name of more than {DATASET_NAME_MAX} characters"
        if not 0 <= dataset.min_time_ms <= dataset.max_time_ms:
            yield "bad_time", f"dataset {position} starts before 1970 or ends before it starts"
        if dataset.table_of_contents[0] + dataset.size > size_bytes:
            yield "bad_dataset", f"dataset {position} ends behind the object's end"


@functools.lru_cache(maxsize=10_000)
def label_text_size(labels: tuple[Labels, ...]) -> int:
    """Return the number of characters of a list of label sets written out in full, including commas."""
    return sum(len(name) + len(value) + 2 for label_set in labels for name, value in label_set) + len(labels)
