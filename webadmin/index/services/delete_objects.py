"""Deletes the objects of replaced blocks once their delay is over. Safe to run twice and by two at the same time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from engine.storage.model import ObjectStore, StorageError
from webadmin.index.models import Block, Dataset, Tombstone
from webadmin.index.states import BlockState
from webadmin.schedule.command_log import advance_clock, read_time

log = logging.getLogger(__name__)

DELETIONS_PER_COMMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionOutcome:
    """How many objects were deleted, and the keys of those that the store did not delete (they are tried again)."""

    deleted: int
    failed: tuple[str, ...]


def delete_tombstoned_objects(*, store: ObjectStore, limit: int = 1000) -> DeletionOutcome:
    """Delete up to ``limit`` objects whose tombstones are due, the oldest first."""
    now_ms = _passing_time_ms()
    due = list(Tombstone.objects.due(now_ms).values_list("id", "block__object_key")[:limit])
    deleted, failed = 0, []
    for start in range(0, len(due), DELETIONS_PER_COMMIT):
        gone = []
        for tombstone_id, key in due[start : start + DELETIONS_PER_COMMIT]:
            try:
                store.delete(key)
                gone.append(tombstone_id)
            except StorageError as error:
                log.warning("object_not_deleted key=%s error=%s", key, error)
                failed.append(key)
        confirm_deleted(gone, at_ms=now_ms)
        deleted += len(gone)
    log.info("objects_deleted deleted=%d failed=%d", deleted, len(failed))
    return DeletionOutcome(deleted=deleted, failed=tuple(failed))


def confirm_deleted(tombstone_ids: Sequence[int], *, at_ms: int) -> None:
    """Note that these objects are gone; what made their blocks findable goes with them."""
    with transaction.atomic(durable=True):
        Tombstone.objects.filter(id__in=tombstone_ids, deleted_at_ms=None).update(deleted_at_ms=at_ms)
        blocks = Block.objects.filter(tombstone__id__in=tombstone_ids)
        Dataset.objects.filter(block__in=blocks).delete()
        blocks.filter(state=BlockState.REPLACED).update(state=BlockState.DELETED, metadata=b"")


def _passing_time_ms() -> int:
    """Return command time; on an idle schedule it would stand still, and no tombstone would ever be due."""
    if read_time().is_held_back:
        advance_clock(actor="control")
    return read_time().now_ms
