"""Write committed changes to buckets: ``meta.json`` of results, then marks on sources, then the bucket index.

Steps run in the order of their rows and are idempotent; a row is done once it was written, so an interrupted step is
repeated. Concurrent workers of one tenant write the same bytes, and write its index one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import F, Q, QuerySet

from engine.core.errors import LithifyError
from engine.lanes.tsdb.buckets.layout import LAYOUTS, Layout
from engine.lanes.tsdb.buckets.marks import REASON_MANUAL, remove_mark, write_mark
from engine.lanes.tsdb.buckets.model import Mark, MarkKind
from engine.lanes.tsdb.buckets.publishing import IncompleteBlock, mark_replaced, publish_meta, update_index
from engine.lanes.tsdb.jobs import BlockFile
from engine.storage import ObjectStore
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import REASON_MAX, Block, Bucket, BucketTenant, OutboxStep
from webadmin.lanes.tsdb.policies import allows_partitions, layout_of
from webadmin.lanes.tsdb.states import BlockState, StepKind

log = logging.getLogger(__name__)

STEPS_MAX = 1000
"""Maximum number of steps of one tenant per call."""
INDEX_AGE_MS = 15 * 60_000
"""Age after which an index is written again without changes: readers reject an index older than 1 h."""
INDEXES_PER_ROUND = 20
"""Maximum number of indexes per round that are written because of their age, oldest first. Spreads the load."""
INDEX_LEASE_MS = 30_000
"""Lease of an index writer; it expires if the writer was killed."""
INDEX_AGAIN_MS = 60_000
"""Delay before a failed index is written again; others of the same age come first."""


class PartsNotAllowed(LithifyError):
    """A partition is not published because readers would treat it as a duplicate; the next plan withdraws its group."""

    code = "parts_not_allowed"


@dataclass(slots=True)
class OutboxReport:
    """Number of writes, and the steps refused: each blocks the tenant's later steps."""

    written: int = 0
    indexes: int = 0
    failed: int = 0


def tenants_to_write() -> list[BucketTenant]:
    """Return the tenants with open outbox steps or a stale or ageing index, including paused ones."""
    waiting = OutboxStep.objects.filter(done_at_ms=None).order_by().values("tenant_id").distinct()
    behind = BucketTenant.objects.filter(index_wanted__gt=F("index_written")) | BucketTenant.objects.filter(
        id__in=waiting
    )
    tenants = behind.select_related("bucket", "folder").defer("folder__examined", "slots").order_by("id")
    aged = _aged().select_related("bucket", "folder").defer("folder__examined", "slots").order_by("index_written_at_ms")
    found = {tenant.id: tenant for tenant in (*tenants, *aged[:INDEXES_PER_ROUND])}
    return list(found.values())


def _aged() -> QuerySet[BucketTenant]:
    """Return the tenants whose index was written longer than ``INDEX_AGE_MS`` ago."""
    layouts = [name for name, kind in LAYOUTS.items() if kind.has_index]
    now_ms = dialect.clock_ms()
    return BucketTenant.objects.filter(
        bucket__layout__in=layouts, index_written_at_ms__lte=now_ms - INDEX_AGE_MS
    ).exclude(index_writer_until_ms__gt=now_ms)


def write_outbox(tenant: BucketTenant, store: ObjectStore) -> OutboxReport:
    """Run the open steps of one tenant in order, up to the first that fails, then update its index in any case."""
    report = OutboxReport()
    layout = layout_of(tenant.bucket)
    steps = OutboxStep.objects.filter(tenant=tenant, done_at_ms=None).select_related("block").order_by("id")
    for step in steps[:STEPS_MAX]:
        try:
            _WRITERS[step.kind](store, layout, tenant, step)
        except LithifyError as error:
            report.failed += 1
            OutboxStep.objects.filter(id=step.id).update(
                attempts=F("attempts") + 1, last_error=f"{type(error).__name__}: {error}"[:REASON_MAX]
            )
            log.warning("outbox_step_failed tenant=%s step=%s reason=%s", tenant.name, step.kind, error)
            break  # the index lists what is in the bucket now, independent of steps still open
        report.written += OutboxStep.objects.filter(id=step.id, done_at_ms=None).update(
            done_at_ms=dialect.clock_ms(), attempts=F("attempts") + 1
        )
    report.indexes = _write_index(store, layout, tenant)
    return report


def _write_meta(store: ObjectStore, layout: Layout, tenant: BucketTenant, step: OutboxStep) -> None:
    block = step.block
    if block.partitions > 1 and not allows_partitions(Bucket.objects.get(id=tenant.bucket_id)):
        raise PartsNotAllowed(f"{block.ulid} is a part of a group, and the bucket does not allow parts any more")
    files = [BlockFile(**file) for file in block.files]
    publish_meta(store, tenant.folder.name, block.ulid, bytes(block.meta), files)
    Block.objects.filter(id=block.id, visible_at_ms=None).update(visible_at_ms=dialect.clock_ms())
    BucketTenant.objects.filter(id=tenant.id).update(plan_at_ms=0)


def _mark_deletion(store: ObjectStore, layout: Layout, tenant: BucketTenant, step: OutboxStep) -> None:
    at_s = step.created_at_ms // 1000  # identical for every writer and every repetition
    is_duplicate = step.block.group_id is None
    if is_duplicate:
        results = list(step.covered_by)
    else:
        results = list(Block.objects.filter(part__group=step.block.group_id).values_list("ulid", flat=True))
    try:
        mark_replaced(store, layout, tenant.folder.name, [step.block.ulid], results, at_s=at_s, details=step.detail)
    except IncompleteBlock:
        if not is_duplicate:
            raise
        # The blocks with its data were lost since planning. This block may be the only copy, so it is live again.
        Block.objects.filter(id=step.block_id, state=BlockState.SUPERSEDED).update(state=BlockState.LIVE, reason="")
        BucketTenant.objects.filter(id=tenant.id).update(plan_at_ms=0)
        return
    Block.objects.filter(id=step.block_id, state=BlockState.SUPERSEDED).update(
        state=BlockState.MARKED, marked_at_ms=at_s * 1000
    )


def _mark_no_compact(store: ObjectStore, layout: Layout, tenant: BucketTenant, step: OutboxStep) -> None:
    mark = Mark(
        ulid=step.block.ulid,
        kind=MarkKind.NO_COMPACT,
        time_s=step.created_at_ms // 1000,
        reason=REASON_MANUAL,
        details=step.detail,
    )
    write_mark(store, layout, tenant.folder.name, mark)


def _unmark_no_compact(store: ObjectStore, layout: Layout, tenant: BucketTenant, step: OutboxStep) -> None:
    remove_mark(store, layout, tenant.folder.name, step.block.ulid, MarkKind.NO_COMPACT)


_WRITERS: dict[str, Callable[[ObjectStore, Layout, BucketTenant, OutboxStep], None]] = {
    StepKind.WRITE_META: _write_meta,
    StepKind.MARK_DELETION: _mark_deletion,
    StepKind.MARK_NO_COMPACT: _mark_no_compact,
    StepKind.UNMARK_NO_COMPACT: _unmark_no_compact,
}


def _write_index(store: ObjectStore, layout: Layout, tenant: BucketTenant) -> int:
    """Write the bucket index if it is stale or too old; return the number written (0 or 1).

    Writes nothing while another writer holds the lease: an index read earlier must not overwrite a newer one.
    """
    turn_ms = _acquire_index_lease(tenant) if _is_index_due(tenant) else None
    if turn_ms is None:
        return 0
    row = BucketTenant.objects.filter(id=tenant.id)
    ours = row.filter(index_writer_until_ms=turn_ms)
    wanted = row.values_list("index_wanted", flat=True).get()
    now_ms = dialect.clock_ms()
    try:
        update_index(store, layout, tenant.folder.name, now_s=now_ms / 1000)
    except LithifyError as error:
        log.warning("bucket_index_not_written tenant=%s reason=%s", tenant.name, error)
        ours.update(index_writer_until_ms=now_ms + INDEX_AGAIN_MS)
        return 0
    if not ours.update(index_written=wanted, index_written_at_ms=now_ms, index_writer_until_ms=None):
        # The lease expired and another writer took it: which index was written last is unknown, so write it again.
        row.update(index_wanted=F("index_wanted") + 1)
    return 1


def _is_index_due(tenant: BucketTenant) -> bool:
    is_behind = BucketTenant.objects.filter(id=tenant.id, index_wanted__gt=F("index_written")).exists()
    return is_behind or _aged().filter(id=tenant.id).exists()


def _acquire_index_lease(tenant: BucketTenant) -> int | None:
    """Return the end of the lease of the index, None if another writer holds it."""
    now_ms = dialect.clock_ms()
    free = Q(index_writer_until_ms=None) | Q(index_writer_until_ms__lt=now_ms)
    until_ms = now_ms + INDEX_LEASE_MS
    return until_ms if BucketTenant.objects.filter(free, id=tenant.id).update(index_writer_until_ms=until_ms) else None
