"""Delete marked blocks and unfinished uploads after their delay. Idempotent and safe to run concurrently."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from django.db.models import F

from engine.lanes.tsdb.buckets.deleting import delete_marked_block, delete_partial_upload
from engine.storage import ObjectStore, StorageError
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import Block, Bucket, BucketTenant, Folder
from webadmin.lanes.tsdb.planning_view import partial_uploads
from webadmin.lanes.tsdb.policies import layout_of
from webadmin.lanes.tsdb.states import BlockState
from webadmin.schedule.services.guard_deletions import DeletionBatches

log = logging.getLogger(__name__)

BLOCKS_MAX = 1000
"""Maximum number of blocks that one round deletes from a bucket."""


@dataclass(slots=True)
class CleanReport:
    """Numbers of blocks and unfinished uploads deleted, and of objects that the store failed to delete."""

    deleted: int = 0
    partials: int = 0
    failed: int = 0


def clean_bucket(bucket: Bucket, store: ObjectStore) -> CleanReport:
    """Delete the marked blocks of a bucket whose delay has passed, and its abandoned uploads.

    Raises LogBehind if the database was restored to an earlier state.
    """
    report = CleanReport()
    if not bucket.is_paused:
        now_ms, batches = dialect.clock_ms(), DeletionBatches()
        _delete_marked(bucket, store, now_ms, report, batches)
        for folder in Folder.objects.filter(bucket=bucket).select_related("bucket").defer("examined"):
            _delete_partials(folder, store, now_ms, report, batches)
    return report


def _delete_marked(
    bucket: Bucket, store: ObjectStore, now_ms: int, report: CleanReport, batches: DeletionBatches
) -> None:
    layout, delay_s = layout_of(bucket), bucket.deletion_delay_seconds
    due = Block.objects.filter(
        tenant__bucket=bucket, state=BlockState.MARKED, marked_at_ms__lte=now_ms - delay_s * 1000
    )
    for block in (
        due.select_related("tenant__folder")
        .defer("meta", "files", "tenant__folder__examined", "tenant__slots")
        .order_by("marked_at_ms", "id")[:BLOCKS_MAX]
    ):
        folder = block.tenant.folder.name
        batches.allow_next()
        try:
            is_deleted = delete_marked_block(store, layout, folder, block.ulid, now_s=now_ms / 1000, delay_s=delay_s)
        except StorageError as error:
            report.failed += 1
            log.warning("block_not_deleted block=%s reason=%s", block.ulid, error)
            continue
        if is_deleted:
            report.deleted += 1
            Block.objects.filter(id=block.id).update(state=BlockState.GONE, visible_at_ms=None)
            BucketTenant.objects.filter(id=block.tenant_id).update(index_wanted=F("index_wanted") + 1)


def _delete_partials(
    folder: Folder, store: ObjectStore, now_ms: int, report: CleanReport, batches: DeletionBatches
) -> None:
    """Delete abandoned uploads; results whose group or outbox steps are not finished are kept."""
    found = partial_uploads(folder.id)
    ours = Block.objects.filter(
        tenant__folder=folder, ulid__in=found, state__in=[BlockState.PENDING, BlockState.LIVE, BlockState.OWNED]
    )
    kept = set(ours.values_list("ulid", flat=True))
    bucket = folder.bucket
    for ulid in found:
        if ulid in kept:
            continue
        batches.allow_next()
        try:
            report.partials += delete_partial_upload(
                store,
                layout_of(bucket),
                folder.name,
                ulid,
                now_s=now_ms / 1000,
                delay_s=bucket.partial_age_seconds,
            )
        except StorageError as error:
            report.failed += 1
            log.warning("partial_not_deleted block=%s reason=%s", ulid, error)
