"""Record what a scan of a bucket found: new blocks, missing blocks, and marks.

Scans only read the bucket. A scan that fails keeps what it has recorded; the next one continues from there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet

from engine.lanes.tsdb.buckets.model import FolderScan, FoundBlock, KnownFolder, Mark, MarkKind
from engine.lanes.tsdb.buckets.scan import scan_folder
from engine.storage import ObjectStore, StorageError
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.backoff import again_at_ms
from webadmin.lanes.tsdb.block_columns import block_columns
from webadmin.lanes.tsdb.models import REASON_MAX, Block, Bucket, BucketTenant, Folder, Group
from webadmin.lanes.tsdb.policies import layout_of
from webadmin.lanes.tsdb.services.dissolve_groups import dissolve_groups, jobs_of
from webadmin.lanes.tsdb.states import BlockState
from webadmin.schedule.rounds import error_text
from webadmin.schedule.services.operation import operation

log = logging.getLogger(__name__)

ACTOR = "control:scan"
PRESENT = (BlockState.LIVE, BlockState.OWNED, BlockState.SUPERSEDED, BlockState.MARKED)
"""States in which a block's ``meta.json`` is in the bucket."""
ROWS_PER_INSERT = 100
LISTED_AGAIN_MS = 24 * 3_600_000
"""Interval at which all objects of a folder are listed.

Only a full listing shows that a block's ``meta.json`` was deleted without a mark, or that the block was marked in its
own folder only.
"""
NAMES_PER_QUERY = 500


@dataclass(slots=True)
class ScanReport:
    """Numbers of new and missing blocks and marks, and of requests."""

    folders: int = 0
    appeared: int = 0
    vanished: int = 0
    marked: int = 0
    partial: int = 0
    bad: int = 0
    broken_off: int = 0
    requests: int = 0


def scan_bucket(bucket: Bucket, store: ObjectStore, *, deep: bool = False) -> ScanReport:
    """Scan every folder of a bucket and record the changes. Raises StorageError if the bucket does not answer.

    A folder whose scan fails for another reason is reported and backed off; the other folders are scanned.
    """
    report = ScanReport()
    try:
        found = layout_of(bucket).folders(store)
        to_list = _to_list(bucket)
        in_backoff = _in_backoff(bucket)
        for name in found.folders:
            if name not in in_backoff:
                _scan_one(bucket, name, store, deep or name == to_list, name in found.deleted, report)
    except StorageError as error:
        Bucket.objects.filter(id=bucket.id).update(scan_error=str(error)[:REASON_MAX])
        raise
    Bucket.objects.filter(id=bucket.id).update(
        scanned_at_ms=dialect.clock_ms(), scan_requests=report.requests, scan_error=""
    )
    return report


def _to_list(bucket: Bucket) -> str | None:
    """Return the folder with the oldest full listing if one is due. One per scan, to spread the load."""
    folders = Folder.objects.filter(bucket=bucket, listed_at_ms__lte=dialect.clock_ms() - LISTED_AGAIN_MS)
    return folders.order_by("listed_at_ms", "id").values_list("name", flat=True).first()


def _in_backoff(bucket: Bucket) -> set[str]:
    """Return the folders in back-off after failed scans."""
    folders = Folder.objects.filter(bucket=bucket, again_at_ms__gt=dialect.clock_ms())
    return set(folders.values_list("name", flat=True))


def _scan_one(bucket: Bucket, name: str, store: ObjectStore, deep: bool, is_deleted: bool, report: ScanReport) -> None:
    folder, is_new = Folder.objects.get_or_create(bucket=bucket, name=name)
    try:
        _scan_folder(folder, is_new, store, deep, is_deleted, report)
    except StorageError:
        raise
    except Exception as error:  # unexpected content of one folder must not stop the scan of the others
        report.broken_off += 1
        log.exception("folder_not_scanned bucket=%s folder=%s", bucket.name, name)
        failures = folder.failures + 1
        Folder.objects.filter(id=folder.id).update(
            trouble=error_text(error)[:REASON_MAX],
            failures=failures,
            again_at_ms=again_at_ms(dialect.clock_ms(), failures),
        )
    else:
        if folder.failures:
            Folder.objects.filter(id=folder.id).update(trouble="", failures=0, again_at_ms=0)


def _scan_folder(
    folder: Folder, is_new: bool, store: ObjectStore, deep: bool, is_deleted: bool, report: ScanReport
) -> None:
    bucket, name = folder.bucket, folder.name
    scan = scan_folder(store, layout_of(bucket), name, _known(folder), deep=deep)
    if deep or is_new or folder.listed_at_ms is None:
        Folder.objects.filter(id=folder.id).update(listed_at_ms=dialect.clock_ms())
    report.folders += 1
    report.appeared += len(scan.appeared) + len(scan.completed)
    report.vanished += len(scan.vanished)
    report.marked += len(scan.new_marks)
    report.partial += len(scan.partial)
    report.bad += len(scan.bad)
    report.requests += sum(scan.requests.values())
    take_scan(folder, replace(scan, is_tenant_deleted=scan.is_tenant_deleted or is_deleted))


def take_scan(folder: Folder, scan: FolderScan) -> None:
    """Record the scan of a folder; dissolve groups that lost a source. Idempotent."""
    now_ms = dialect.clock_ms()
    tenants = _tenants(folder, scan)
    changed: set[int] = set()
    with transaction.atomic():
        changed |= _take_blocks((*scan.appeared, *scan.completed), tenants, now_ms, folder.bucket)
        changed |= _take_marks(scan, folder)
    changed |= _take_losses(folder, scan)
    examined = {
        "partial": [asdict(one) for one in scan.partial],
        "bad": [
            {"ulid": one.ulid, "error_class": type(one.error).__name__, "message": str(one.error)[:REASON_MAX]}
            for one in scan.bad
        ],
        "marks": [_kept(mark) for mark in scan.known.marks.values()],
        "ignored": scan.ignored,
    }
    with transaction.atomic():
        Folder.objects.filter(id=folder.id).update(
            examined=examined, scanned_at_ms=now_ms, bad=len(scan.bad), partial=len(scan.partial)
        )
        BucketTenant.objects.filter(folder=folder).exclude(is_deleted=scan.is_tenant_deleted).update(
            is_deleted=scan.is_tenant_deleted, plan_at_ms=0
        )
        BucketTenant.objects.filter(id__in=changed).update(plan_at_ms=0, index_wanted=F("index_wanted") + 1)


def _kept(mark: Mark) -> dict[str, Any]:
    """Return the stored form of a mark, truncated: marks of other writers may have any length."""
    texts = {name: text[:REASON_MAX] for name, text in asdict(mark).items() if name in ("reason", "details", "fault")}
    return asdict(mark) | texts


def _known(folder: Folder) -> KnownFolder:
    """Return what earlier scans of a folder recorded."""
    complete = Block.objects.filter(tenant__folder=folder, visible_at_ms__isnull=False, state__in=PRESENT)
    examined = folder.examined
    marks = [Mark(**{**mark, "kind": MarkKind(mark["kind"])}) for mark in examined.get("marks", [])]
    return KnownFolder(
        complete=frozenset(complete.order_by().values_list("ulid", flat=True)),
        partial=frozenset(one["ulid"] for one in examined.get("partial", [])),
        bad=frozenset(one["ulid"] for one in examined.get("bad", [])),
        marks={mark.key: mark for mark in marks},
    )


def _tenants(folder: Folder, scan: FolderScan) -> dict[str, int]:
    """Return the row ids of the tenants whose blocks were found; create missing tenants."""
    names = set(scan.tenants) | ({folder.name[:-1]} if folder.name else set())
    known = dict(BucketTenant.objects.filter(bucket=folder.bucket, name__in=names).values_list("name", "id"))
    for name in sorted(names - known.keys()):
        row, _ = BucketTenant.objects.get_or_create(bucket=folder.bucket, name=name, defaults={"folder": folder})
        known[name] = row.id
    return known


def _take_blocks(found: Iterable[FoundBlock], tenants: Mapping[str, int], now_ms: int, bucket: Bucket) -> set[int]:
    """Insert new blocks; mark this installation's results and returned blocks as present."""
    found = list(found)
    known = Block.objects.filter(tenant__in=tenants.values()).defer("meta", "files")
    held = {(row.tenant_id, row.ulid): row for row in _named(known, [one.ulid for one in found])}
    fresh = []
    changed = set()
    for one in found:
        tenant_id = tenants[one.tenant]
        row = held.get((tenant_id, one.ulid))
        if row is None:
            fresh.append(_row(one, tenant_id, now_ms, was_there=bucket.scanned_at_ms is None))
        elif row.state == BlockState.GONE:
            Block.objects.filter(id=row.id).update(
                state=BlockState.LIVE, group=None, reason="", visible_at_ms=now_ms, marked_at_ms=None
            )
        elif row.visible_at_ms is None and row.state != BlockState.PENDING:
            Block.objects.filter(id=row.id).update(visible_at_ms=now_ms)
        else:
            continue
        changed.add(tenant_id)
    Block.objects.bulk_create(fresh, batch_size=ROWS_PER_INSERT, ignore_conflicts=True)  # concurrent scans
    return changed


def _row(one: FoundBlock, tenant_id: int, now_ms: int, *, was_there: bool) -> Block:
    """Return the row of a new block.

    Blocks that existed when the bucket was adopted do not wait for later data: in a copied bucket every object has a
    recent upload time although its data is old.
    """
    return Block(
        tenant_id=tenant_id,
        ulid=one.ulid,
        group_key=one.group_key,
        uploaded_at_ms=0 if was_there else round(one.uploaded_at_s * 1000),
        found_at_ms=now_ms,
        visible_at_ms=now_ms,
        **block_columns(one.meta, one.files, one.meta_bytes),
    )


def _take_marks(scan: FolderScan, folder: Folder) -> set[int]:
    """Record new and removed marks of blocks that no group owns.

    Examines all marks, not only new ones: a block may be recorded, or freed by its group, after it was marked.
    """
    changed: set[int] = set()
    blocks = Block.objects.filter(tenant__folder=folder)
    free = blocks.filter(no_compact="").exclude(state=BlockState.OWNED)
    for row_id, tenant_id, mark in _marked(free, scan.known.marks.values(), MarkKind.NO_COMPACT):
        changed.add(tenant_id)
        Block.objects.filter(id=row_id).update(no_compact=_why(mark))
    present = blocks.filter(state__in=[BlockState.LIVE, BlockState.SUPERSEDED])
    for row_id, tenant_id, mark in _marked(present, scan.known.marks.values(), MarkKind.DELETION):
        changed.add(tenant_id)
        at_ms = mark.time_s * 1000 or None
        Block.objects.filter(id=row_id).update(state=BlockState.MARKED, marked_at_ms=at_ms)
    for row_id, tenant_id, _ in _marked(blocks.exclude(no_compact=""), scan.vanished_marks, MarkKind.NO_COMPACT):
        changed.add(tenant_id)
        Block.objects.filter(id=row_id).update(no_compact="")
    marked = blocks.filter(state=BlockState.MARKED)
    for row_id, tenant_id, _ in _marked(marked, scan.vanished_marks, MarkKind.DELETION):
        changed.add(tenant_id)
        Block.objects.filter(id=row_id).update(state=BlockState.LIVE, marked_at_ms=None, group=None, reason="")
    return changed


def _marked(rows: QuerySet[Block], marks: Iterable[Mark], kind: MarkKind) -> list[tuple[int, int, Mark]]:
    """Return the rows that have a mark of this kind: row id, tenant, mark. One query per 500 marks."""
    of_kind = {mark.ulid: mark for mark in marks if mark.kind is kind}
    ulids = sorted(of_kind)
    found = []
    for start in range(0, len(ulids), NAMES_PER_QUERY):
        some = rows.filter(ulid__in=ulids[start : start + NAMES_PER_QUERY]).order_by("id")
        found += [
            (row_id, tenant_id, of_kind[ulid])
            for row_id, tenant_id, ulid in some.values_list("id", "tenant_id", "ulid")
        ]
    return found


def _why(mark: Mark) -> str:
    return (mark.fault or f"{mark.reason} {mark.details}".strip() or "no reason is given")[:REASON_MAX]


def _take_losses(folder: Folder, scan: FolderScan) -> set[int]:
    """Remove missing blocks and marked sources from planning; dissolve the groups that own them."""
    lost = sorted({*scan.vanished, *(ulid for ulid, _ in scan.known.marks)})
    sources = Block.objects.filter(tenant__folder=folder, state=BlockState.OWNED).select_related("group")
    owned = _named(sources.defer("meta", "files"), lost)
    groups = {block.group_id: block.group for block in owned if block.group is not None}
    if groups:
        names = ", ".join(block.ulid for block in owned[:5])
        end_groups(list(groups.values()), f"sources of it were deleted or marked: {names}")
        with transaction.atomic():
            _take_marks(scan, folder)
    gone = Block.objects.filter(tenant__folder=folder).exclude(state=BlockState.PENDING).defer("meta", "files")
    rows = _named(gone, scan.vanished)
    for start in range(0, len(rows), NAMES_PER_QUERY):
        ids = [row.id for row in rows[start : start + NAMES_PER_QUERY]]
        Block.objects.filter(id__in=ids).update(state=BlockState.GONE, visible_at_ms=None)
    return {row.tenant_id for row in rows}


def _named(rows: QuerySet[Block], ulids: Sequence[str]) -> list[Block]:
    """Return the rows with these ULIDs, in queries of bounded size."""
    return [
        row
        for start in range(0, len(ulids), NAMES_PER_QUERY)
        for row in rows.filter(ulid__in=ulids[start : start + NAMES_PER_QUERY])
    ]


def end_groups(groups: Sequence[Group], because: str, context: ActionContext | None = None) -> None:
    """Dissolve groups in a separate command."""
    context = context or ActionContext(actor=ACTOR, why=because)
    with operation() as run:
        names = [job.name for job in jobs_of(groups)]
        detail = {"jobs": names, "groups": [group.id for group in groups]}
        run.write("dissolve_groups", context, target=f"{len(groups)} groups", detail=detail)
        dissolve_groups(run, groups, because=because)
