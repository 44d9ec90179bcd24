"""Insert block rows, dataset rows and queue entries; used by everything that makes blocks live.

Names are interned before the transaction: unused names do no harm, and the head of the log is not held meanwhile.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.formats.profile_block.model import DatasetMeta, Labels
from engine.lanes.profiles.plan.model import QueueKey
from webadmin.base.access.services import request_tenant_ids
from webadmin.base.database.dialect import (
    among,
    insert_new_rows,
    insert_rows,
    pipeline,
    request_ids_early,
    request_rows,
    reserve_ids,
)
from webadmin.lanes.profiles.models import AcceptedId, Block, Dataset, DatasetName, LabelSets
from webadmin.lanes.profiles.planning.level_queues import QueueChanges, request_queue_ids
from webadmin.lanes.profiles.registration import PARTITION_MS, BlockRegistration
from webadmin.lanes.profiles.services.intern_services import intern_services
from webadmin.lanes.profiles.states import BlockState

ROWS_PER_INSERT = 500
NAMES_PER_QUERY = 500
DATASET_COLUMNS = (
    *("block_id", "tenant_id", "name_id", "label_sets_id", "position"),
    *("format", "min_time_ms", "max_time_ms", "size_bytes", "masks_applied"),
)
LEDGER_COLUMNS = ("shard", "ulid", "content_digest", "accepted_at_ms", "command_index")
LABEL_DIGESTS_KEPT = 10_000
"""Size of the cache of digests: writers repeat their label sets in every segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternedNames:
    """Row ids of everything that the blocks to insert refer to."""

    tenants: dict[str, int]
    names: dict[str, int]
    label_sets: dict[str, int]
    queues: dict[QueueKey, int]
    block_ids: tuple[int, ...] = ()
    """Reserved row ids of the blocks, if the database supports that."""

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

    Delete commands up to ``masks_applied`` do not apply to their data: by default those before this command.
    """

    command_index: int
    command_time_ms: int
    masks_applied: int | None = None

    def obeyed(self, registration: BlockRegistration) -> int:
        """Return the index of the last delete command that does not apply to a block added at this moment."""
        own = self.command_index if self.masks_applied is None else self.masks_applied
        return max(own, registration.masks_applied)


def intern_names(registrations: Sequence[BlockRegistration], *, numbers_blocks: bool = False) -> InternedNames:
    """Insert missing rows that these blocks refer to. Call it outside the transaction that inserts the blocks.

    With ``numbers_blocks`` the caller must insert all of them, in this order, and no one else may.
    """
    datasets = [dataset for registration in registrations for dataset in registration.meta.datasets]
    tenants = {dataset.tenant for dataset in datasets} | {r.meta.tenant for r in registrations if r.meta.tenant}
    with pipeline():
        known_tenants = request_tenant_ids(tenants)
        known_names = _request_dataset_names({dataset.name for dataset in datasets})
        known_labels = _request_label_sets({dataset.labels for dataset in datasets})
        known_queues = request_queue_ids({r.queue_key() for r in registrations if not r.is_final})
        block_ids = request_ids_early(Block, len(registrations) if numbers_blocks else 0)
    interned = InternedNames(
        tenants=known_tenants(),
        names=known_names(),
        label_sets=known_labels(),
        queues=known_queues(),
        block_ids=tuple(block_ids()),
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
    """Insert the blocks with their datasets, and add to ``changes`` the queues they joined.

    ``ids`` are their row ids if those are reserved already.
    """
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
            changes.add_fresh(block["queue_id"], block["size_bytes"], arrived_at_ms=moment.command_time_ms)


def record_ids(registrations: Sequence[BlockRegistration], moment: InsertMoment) -> None:
    """Add these ids to the ledger; known ones keep their entry."""
    rows = [
        (r.meta.shard, r.meta.id, r.content_digest(), moment.command_time_ms, moment.command_index)
        for r in registrations
    ]
    insert_new_rows(AcceptedId, LEDGER_COLUMNS, rows)


def _spans(datasets: Iterable[DatasetMeta], interned: InternedNames) -> dict[tuple[int, int, int], int]:
    """Return the longest time range of a dataset, by the row ids of tenant, name and label sets."""
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


def _request_dataset_names(names: set[str]) -> Callable[[], dict[str, int]]:
    return _request_interned(DatasetName, "name", names, lambda name: DatasetName(name=name))


def _request_label_sets(all_labels: set[tuple[Labels, ...]]) -> Callable[[], dict[str, int]]:
    by_digest = {label_sets_digest(labels): labels for labels in all_labels}
    return _request_interned(
        LabelSets,
        "digest",
        by_digest,
        lambda digest: LabelSets(digest=digest, label_sets=_plain(by_digest[digest])),
    )


def _request_interned(
    model: type[Any], column: str, values: Collection[str], row: Callable[[str], Any]
) -> Callable[[], dict[str, int]]:
    """Query the row ids of these values of a column; new rows are inserted when the result is read."""
    wanted = sorted(values)
    pending = _request_by(model, column, wanted)

    def answer() -> dict[str, int]:
        known = pending()
        if missing := [value for value in wanted if value not in known]:
            rows = [row(value) for value in missing]
            model.objects.bulk_create(rows, ignore_conflicts=True, batch_size=ROWS_PER_INSERT)
            known |= _request_by(model, column, missing)()
        return known

    return answer


def _request_by(model: type[Any], column: str, values: Sequence[str]) -> Callable[[], dict[str, int]]:
    fetches = []
    for start in range(0, len(values), NAMES_PER_QUERY):
        wanted, own = among(model, column, values[start : start + NAMES_PER_QUERY])
        fetches.append(request_rows(model, (column, "id"), f"WHERE {wanted}", own))
    return lambda: {value: row_id for rows in fetches for value, row_id in rows()}


def _plain(labels: tuple[Labels, ...]) -> list[list[list[str]]]:
    return [[[name, value] for name, value in label_set] for label_set in labels]


@functools.lru_cache(maxsize=LABEL_DIGESTS_KEPT)
def label_sets_digest(labels: tuple[Labels, ...]) -> str:
    """Return the digest under which a list of label sets is interned."""
    return hashlib.sha256(json.dumps(_plain(labels), ensure_ascii=False).encode()).hexdigest()
