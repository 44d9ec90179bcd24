"""Delete the objects of removed blocks after their delay. Safe to repeat and to run concurrently.

Two steps, each committed: an object is dispatched before the request to the store, and confirmed when the store has
confirmed the deletion. Dispatched objects without confirmation, because a process died or the store failed, are
retried; every key belongs to one block that is not live, so that a repeated request is harmless.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F

from engine.storage.model import ObjectStore, StorageError
from webadmin.lanes.profiles.models import Block, Dataset, Tombstone
from webadmin.lanes.profiles.services.event_totals import OBJECTS, count_events
from webadmin.lanes.profiles.services.record_lineage import record_lineage
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.command_log import advance_clock, read_time
from webadmin.schedule.services.guard_deletions import allow_deletions

log = logging.getLogger(__name__)

DELETIONS_PER_COMMIT = 100
RETRY_MS = 30_000
"""The first back-off after a failure; it doubles each time up to RETRY_MAX_MS, so that failing objects delay no others.
"""
RETRY_MAX_MS = 3600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionOutcome:
    """The number of deleted objects, and the keys that the store did not delete (they are retried)."""

    deleted: int
    failed: tuple[str, ...]


def delete_tombstoned_objects(*, store: ObjectStore, limit: int = 1000) -> DeletionOutcome:
    """Delete up to ``limit`` objects whose tombstones are due, the oldest first.

    Raises LogBehind if the database lacks commands that the bucket's log positions record.
    """
    now_ms = _passing_time_ms()
    due = list(Tombstone.objects.due(now_ms).values_list("id", "block__object_key")[:limit])
    record_lineage(store=store)  # write lineage first: it cannot be read from deleted objects
    deleted: int = 0
    failed: list[str] = []
    for start in range(0, len(due), DELETIONS_PER_COMMIT):
        keys = dict(due[start : start + DELETIONS_PER_COMMIT])
        allow_deletions(store=store)
        dispatch(list(keys), at_ms=now_ms)
        errors = _delete(store, keys)
        gone = [tombstone_id for tombstone_id in keys if tombstone_id not in errors]
        confirm_deleted(gone, at_ms=now_ms)
        note_failures(errors, at_ms=now_ms)
        deleted += len(gone)
        failed += [keys[tombstone_id] for tombstone_id in errors]
    count_events(f"{OBJECTS}deleted", deleted)
    count_events(f"{OBJECTS}failed", len(failed))
    log.info("objects_deleted deleted=%d failed=%d", deleted, len(failed))
    return DeletionOutcome(deleted=deleted, failed=tuple(failed))


def dispatch(tombstone_ids: Sequence[int], *, at_ms: int) -> None:
    """Record that the deletion of these objects is requested now."""
    Tombstone.objects.filter(id__in=tombstone_ids, deleted_at_ms=None).update(
        dispatched_at_ms=at_ms, attempts=F("attempts") + 1
    )


def confirm_deleted(tombstone_ids: Sequence[int], *, at_ms: int) -> None:
    """Record that these objects are deleted, and delete the rows that made their blocks findable."""
    with transaction.atomic(durable=True):
        Tombstone.objects.filter(id__in=tombstone_ids, deleted_at_ms=None).update(deleted_at_ms=at_ms, last_error="")
        blocks = Block.objects.filter(tombstone__id__in=tombstone_ids)
        Dataset.objects.filter(block__in=blocks).delete()
        removed = blocks.filter(state__in=[BlockState.REPLACED, BlockState.DROPPED])
        removed.update(state=BlockState.DELETED, metadata=b"")


def note_failures(errors: Mapping[int, str], *, at_ms: int) -> None:
    """Record the errors of these deletions, and the times of the retries."""
    attempts = dict(Tombstone.objects.filter(id__in=list(errors)).values_list("id", "attempts"))
    for tombstone_id, error in errors.items():
        wait_ms = min(RETRY_MS << min(max(attempts.get(tombstone_id, 1), 1) - 1, 10), RETRY_MAX_MS)
        Tombstone.objects.filter(id=tombstone_id, deleted_at_ms=None).update(
            last_error=error[:500], retry_at_ms=at_ms + wait_ms
        )


def _delete(store: ObjectStore, keys: Mapping[int, str]) -> dict[int, str]:
    """Delete each object in the store; return the errors by tombstone."""
    errors: dict[int, str] = {}
    for tombstone_id, key in keys.items():
        try:
            store.delete(key)
        except StorageError as error:
            log.warning("object_not_deleted key=%s error=%s", key, error)
            errors[tombstone_id] = str(error)
    return errors


def _passing_time_ms() -> int:
    """Return advancing command time: on an idle schedule it would not advance, and no tombstone would become due."""
    if read_time().is_held_back:
        advance_clock(actor="control")
    return read_time().now_ms
