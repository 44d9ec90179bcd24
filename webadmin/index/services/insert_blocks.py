"""Puts block rows, dataset rows and queue entries in place; shared by everything that makes blocks live.

Interning happens before the transaction: names are never wrong to have, and the head of the log is not held for them.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.planning.model import QueueKey
from engine.profiles.model import DatasetMeta, Labels
from webadmin.access.services import intern_tenants
from webadmin.database.dialect import among, insert_new_rows, insert_rows, read_rows, reserve_ids
from webadmin.index.models import AcceptedId, Block, Dataset, DatasetName, LabelSets
from webadmin.index.registration import PARTITION_MS, BlockRegistration
from webadmin.index.services.intern_services import intern_services
from webadmin.index.states import BlockState
from webadmin.schedule.level_queues import QueueChanges, intern_queues

ROWS_PER_INSERT = 500
NAMES_PER_QUERY = 500
DATASET_COLUMNS = (
    *("block_id", "tenant_id", "name_id", "label_sets_id", "position"),
    *("format", "min_time_ms", "max_time_ms", "size_bytes", "masks_applied"),
)
LEDGER_COLUMNS = ("shard", "ulid", "content_digest", "accepted_at_ms", "command_index")
LABEL_DIGESTS_KEPT = 10_000
"""Writers repeat their label sets in every segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternedNames:
    """Row ids of everything that the blocks to insert refer to."""

    tenants: dict[str, int]
    names: dict[str, int]
    label_sets: dict[str, int]
    queues: dict[QueueKey, int]

    def dataset_key(self, dataset: DatasetMeta) -> tuple[int, int, int]:
        """Return the row ids of the dataset's tenant, name and label sets."""
        return (
            self.tenants[dataset.tenant],
            self.names[dataset.name],
            self.label_sets[label_sets_digest(dataset.labels)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertMoment:
    """The command that makes blocks live, and its time.

    Delete commands up to ``masks_applied`` take nothing from their data: by default those before this command.
    """

    command_index: int
    command_time_ms: int
    masks_applied: int | None = None

    def obeyed(self, registration: BlockRegistration) -> int:
        """Return the index of the last delete command that is not about a block that comes at this moment."""
        own = self.command_index if self.masks_applied is None else self.masks_applied
        return max(own, registration.masks_applied)


def intern_names(registrations: Sequence[BlockRegistration]) -> InternedNames:
    """Make sure that everything these blocks refer to has a row. Call it outside the transaction that inserts."""
    datasets = [dataset for registration in registrations for dataset in registration.meta.datasets]
    tenants = {dataset.tenant for dataset in datasets} | {r.meta.tenant for r in registrations if r.meta.tenant}
    interned = InternedNames(
        tenants=intern_tenants(tenants),
        names=_intern_dataset_names({dataset.name for dataset in datasets}),
        label_sets=_intern_label_sets({dataset.labels for dataset in datasets}),
        queues=intern_queues({r.queue_key() for r in registrations if not r.is_final}),
    )
    intern_services(_spans(datasets, interned))
    return interned


def insert_blocks(
    registrations: Sequence[BlockRegistration],
    interned: InternedNames,
    moment: InsertMoment,
    changes: QueueChanges,
    *,
    ids: Sequence[int] | None = None,
) -> None:
    """Insert the blocks with their datasets and note in ``changes`` which queues they joined. ``ids`` are their row
    ids, if those are reserved already."""
    ids = reserve_ids(Block, len(registrations)) if ids is None else ids
    blocks = [_block_row(id, r, interned, moment) for id, r in zip(ids, registrations, strict=True)]
    insert_rows(Block, list(blocks[0]) if blocks else [], [list(block.values()) for block in blocks])
    datasets = [
        (id, *interned.dataset_key(dataset), position, *_dataset_values(dataset), moment.obeyed(registration))
        for id, registration in zip(ids, registrations, strict=True)
        for position, dataset in enumerate(registration.meta.datasets)
    ]
    insert_rows(Dataset, DATASET_COLUMNS, datasets)
    for block in blocks:
        if block["queue_id"] is not None:
            changes.add(block["queue_id"], 1, block["size_bytes"])


def remember_ids(registrations: Sequence[BlockRegistration], moment: InsertMoment) -> None:
    """Note in the ledger those of these ids that it does not know yet; a known one keeps its entry."""
    rows = [
        (r.meta.shard, r.meta.id, r.content_digest(), moment.command_time_ms, moment.command_index)
        for r in registrations
    ]
    insert_new_rows(AcceptedId, LEDGER_COLUMNS, rows)


def _spans(datasets: Iterable[DatasetMeta], interned: InternedNames) -> dict[tuple[int, int, int], int]:
    """Return the longest time that one dataset covers, by the row ids of tenant, name and label sets."""
    spans: dict[tuple[int, int, int], int] = {}
    for dataset in datasets:
        key = interned.dataset_key(dataset)
        spans[key] = max(spans.get(key, 0), dataset.max_time_ms - dataset.min_time_ms)
    return spans


def _block_row(
    row_id: int, registration: BlockRegistration, interned: InternedNames, moment: InsertMoment
) -> dict[str, Any]:
    """Return every column of the block's row, always in the same order."""
    meta = registration.meta
    created_at_ms = registration.created_at_ms
    return {
        "id": row_id,
        "ulid": meta.id,
        "tenant_id": interned.tenants[meta.tenant] if meta.tenant else None,
        "shard": meta.shard,
        "level": meta.compaction_level,
        "partition_start_ms": created_at_ms - created_at_ms % PARTITION_MS,
        "created_at_ms": created_at_ms,
        "min_time_ms": meta.min_time_ms,
        "max_time_ms": meta.max_time_ms,
        "size_bytes": registration.size_bytes,
        "crc32c": registration.crc32c,
        "object_key": registration.object_key,
        "metadata": registration.metadata,
        "dataset_count": len(meta.datasets),
        "state": (BlockState.FINAL if registration.is_final else BlockState.QUEUED).value,
        "parked_reason": "",
        "owner_job_id": None,
        "queue_id": None if registration.is_final else interned.queues[registration.queue_key()],
        "added_command_index": moment.command_index,
        "removed_command_index": None,
        "arrived_at_ms": moment.command_time_ms,
    }


def _dataset_values(dataset: DatasetMeta) -> tuple[int, int, int, int]:
    return (dataset.format, dataset.min_time_ms, dataset.max_time_ms, dataset.size)


def _intern_dataset_names(names: set[str]) -> dict[str, int]:
    known = _rows_by("name", DatasetName, sorted(names))
    missing = [DatasetName(name=name) for name in sorted(names) if name not in known]
    if missing:
        DatasetName.objects.bulk_create(missing, ignore_conflicts=True, batch_size=ROWS_PER_INSERT)
        known |= _rows_by("name", DatasetName, [row.name for row in missing])
    return known


def _intern_label_sets(all_labels: set[tuple[Labels, ...]]) -> dict[str, int]:
    by_digest = {label_sets_digest(labels): labels for labels in all_labels}
    known = _rows_by("digest", LabelSets, sorted(by_digest))
    missing = [
        LabelSets(digest=digest, label_sets=_plain(by_digest[digest]))
        for digest in sorted(by_digest)
        if digest not in known
    ]
    if missing:
        LabelSets.objects.bulk_create(missing, ignore_conflicts=True, batch_size=ROWS_PER_INSERT)
        known |= _rows_by("digest", LabelSets, [row.digest for row in missing])
    return known


def _rows_by(column: str, model: type[Any], values: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(values), NAMES_PER_QUERY):
        wanted, own = among(model, column, values[start : start + NAMES_PER_QUERY])
        found |= dict(read_rows(model, (column, "id"), f"WHERE {wanted}", own))
    return found


def _plain(labels: tuple[Labels, ...]) -> list[list[list[str]]]:
    return [[[name, value] for name, value in label_set] for label_set in labels]


@functools.lru_cache(maxsize=LABEL_DIGESTS_KEPT)
def label_sets_digest(labels: tuple[Labels, ...]) -> str:
    """Return what a whole list of label sets is interned under."""
    return hashlib.sha256(json.dumps(_plain(labels), ensure_ascii=False).encode()).hexdigest()
