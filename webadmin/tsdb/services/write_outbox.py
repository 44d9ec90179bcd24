"""Writes to buckets what commits have promised: meta.json of results, then marks on sources, then the bucket index.

Each step is done in the order of its row, and a row is done when it was written: a step that broke off is done again,
and twice is the same as once. Two workers at the same tenant write the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import F

from engine.errors import LithifyError
from engine.protocol.tsdb_jobs import BlockFile
from engine.storage import ObjectStore
from engine.tsdb.buckets.index_update import update_index
from engine.tsdb.buckets.layout import Layout
from engine.tsdb.buckets.marks import REASON_MANUAL, remove_mark, write_mark
from engine.tsdb.buckets.model import Mark, MarkKind
from engine.tsdb.buckets.publishing import mark_replaced, publish_meta
from webadmin.database import dialect
from webadmin.tsdb.models import REASON_MAX, Block, BucketTenant, OutboxStep
from webadmin.tsdb.policies import layout_of
from webadmin.tsdb.states import BlockState, StepKind

log = logging.getLogger(__name__)

STEPS_MAX = 1000
"""Steps of one tenant in one go."""


@dataclass(slots=True)
class OutboxReport:
    """How much was written, and what was refused: a tenant's later steps wait for that one."""

    written: int = 0
    indexes: int = 0
    failed: int = 0


def tenants_to_write() -> list[BucketTenant]:
    """Return the tenants with something in the outbox, or an index that is behind."""
    waiting = OutboxStep.objects.filter(done_at_ms=None).order_by().values("tenant_id").distinct()
    behind = BucketTenant.objects.filter(index_wanted__gt=F("index_written")) | BucketTenant.objects.filter(
        id__in=waiting
    )
    return list(behind.select_related("bucket", "folder").defer("folder__looked", "slots").order_by("id"))


def write_outbox(tenant: BucketTenant, store: ObjectStore) -> OutboxReport:
    """Do the open steps of one tenant in order, up to the first that fails, then bring its index up to date."""
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
            return report
        report.written += OutboxStep.objects.filter(id=step.id, done_at_ms=None).update(
            done_at_ms=dialect.clock_ms(), attempts=F("attempts") + 1
        )
    report.indexes = _write_index(store, layout, tenant)
    return report


def _write_meta(store: ObjectStore, layout: Layout, tenant: BucketTenant, step: OutboxStep) -> None:
    block = step.block
    files = [BlockFile(**file) for file in block.files]
    publish_meta(store, tenant.folder.name, block.ulid, bytes(block.meta), files)
    Block.objects.filter(id=block.id, visible_at_ms=None).update(visible_at_ms=dialect.clock_ms())
    BucketTenant.objects.filter(id=tenant.id).update(plan_at_ms=0)


def _mark_deletion(store: ObjectStore, layout: Layout, tenant: BucketTenant, step: OutboxStep) -> None:
    at_s = step.created_at_ms // 1000  # the same whoever writes it, and how often
    results: list[str] = []
    if step.block.group_id is not None:
        results = list(Block.objects.filter(part__group=step.block.group_id).values_list("ulid", flat=True))
    mark_replaced(store, layout, tenant.folder.name, [step.block.ulid], results, at_s=at_s, details=step.detail)
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
    """Write the bucket index if something changed since it was written; return how many were written."""
    wanted, written = BucketTenant.objects.filter(id=tenant.id).values_list("index_wanted", "index_written").get()
    if wanted <= written:
        return 0
    now_ms = dialect.clock_ms()
    try:
        update_index(store, layout, tenant.folder.name, now_s=now_ms / 1000)
    except LithifyError as error:
        log.warning("bucket_index_not_written tenant=%s reason=%s", tenant.name, error)
        return 0
    BucketTenant.objects.filter(id=tenant.id, index_written__lt=wanted).update(
        index_written=wanted, index_written_at_ms=now_ms
    )
    return 1
