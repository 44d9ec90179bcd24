"""Delete replaced files, old manifests, and outputs that were never committed.

A replaced file is deleted ``deletion_delay_seconds`` after the pointer has passed it, so that readers of an older
manifest still get exact rows. The pointer is checked before any deletion.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from django.db.models import F

from engine.core.errors import BadObject
from engine.storage import ObjectStore, StorageError
from webadmin.base.database import dialect
from webadmin.lanes.tables.column_sizes import REASON_MAX
from webadmin.lanes.tables.models import DataSource, Policy, Segment
from webadmin.lanes.tables.services.publish_manifest import is_shown, lost_pointer
from webadmin.lanes.tables.services.take_files import check_folders
from webadmin.lanes.tables.states import SegmentState, TaskState
from webadmin.lanes.tables.task_models import DiscardedOutput, Manifest, TaskChunk
from webadmin.schedule.services.guard_deletions import DeletionBatches

log = logging.getLogger(__name__)

FILES_MAX = 2000
"""Maximum number of objects of each kind that one round deletes from a table."""
MANIFEST_DELAYS = 2
"""Old manifests are kept for this multiple of the delay of replaced files."""


@dataclass(slots=True)
class CleanReport:
    """Numbers of objects deleted and of failed deletions."""

    files: int = 0
    outputs: int = 0
    manifests: int = 0
    failed: int = 0


def clean_table(source: DataSource, store: ObjectStore) -> CleanReport:
    """Delete what is due.

    Raises StorageError, BadObject if the pointer cannot be read, LogBehind if the database was restored to an earlier
    state. Raises ForeignTable if a replaced file lies in a table of another format: it may be a file of that table, so
    nothing is deleted and the table is paused.
    """
    report = CleanReport()
    delay_ms = Policy.objects.values_list("deletion_delay_seconds", flat=True).get(source=source) * 1000
    now_ms = dialect.clock_ms()
    files = Segment.objects.filter(
        source=source, state=SegmentState.REPLACED, unlinked_at_ms__lte=now_ms - delay_ms
    ).order_by("unlinked_at_ms", "id")[:FILES_MAX]
    old = Manifest.objects.filter(
        source=source, superseded_at_ms__lte=now_ms - MANIFEST_DELAYS * delay_ms, deleted_at_ms=None
    ).order_by("sequence")[:FILES_MAX]
    discarded = DiscardedOutput.objects.filter(source=source, deleted_at_ms=None, delete_at_ms__lte=now_ms)
    waste = discarded.order_by("delete_at_ms", "id")[:FILES_MAX]
    if not (files or old or waste):
        return report
    check_folders(source, store, [segment.path for segment in files if segment.path])
    batches = DeletionBatches()
    batches.allow_next()
    if (files or old) and is_shown(source, store):
        for segment in files:
            batches.allow_next()
            _delete_file(segment, store, report)
        for manifest in old:
            batches.allow_next()
            _delete_manifest(manifest, store, now_ms, report)
    # A result that this database discarded may be in the table by a history that it lost.
    for output in waste if waste and lost_pointer(source, store) is None else ():
        _delete_output(output, store, now_ms, report, batches)
    return report


def _delete_file(segment: Segment, store: ObjectStore, report: CleanReport) -> None:
    try:
        if not segment.is_tombstone:
            store.delete(segment.path)
    except StorageError as error:
        report.failed += 1
        log.warning("file_not_deleted path=%s reason=%s", segment.path, error)
        return
    report.files += Segment.objects.filter(id=segment.id, state=SegmentState.REPLACED).update(
        state=SegmentState.DELETED
    )


def _delete_manifest(manifest: Manifest, store: ObjectStore, now_ms: int, report: CleanReport) -> None:
    try:
        store.delete(manifest.path)
    except StorageError as error:
        report.failed += 1
        log.warning("manifest_not_deleted path=%s reason=%s", manifest.path, error)
        return
    report.manifests += Manifest.objects.filter(id=manifest.id).update(deleted_at_ms=now_ms)


def _delete_output(
    output: DiscardedOutput, store: ObjectStore, now_ms: int, report: CleanReport, batches: DeletionBatches
) -> None:
    try:
        if output.is_prefix:
            if _may_be_written(output):
                return
            found = [info.key for info in store.list(output.path)]
        else:
            found = [output.path]
        unknown = set(found) - _in_timeline(output.source_id, found)
        for path in sorted(unknown):
            batches.allow_next()
            store.delete(path)
    except (StorageError, BadObject) as error:
        report.failed += 1
        DiscardedOutput.objects.filter(id=output.id).update(
            attempts=F("attempts") + 1, last_error=str(error)[:REASON_MAX]
        )
        return
    report.outputs += len(unknown)
    DiscardedOutput.objects.filter(id=output.id).update(deleted_at_ms=now_ms, attempts=F("attempts") + 1)


def _may_be_written(output: DiscardedOutput) -> bool:
    """Return whether a running task may write files with the names of this discarded output."""
    if output.task is None:
        return False
    starts = TaskChunk.objects.filter(task=output.task).values("start_ms")
    at_work = TaskChunk.objects.filter(source=output.source_id, task__state=TaskState.OPEN, start_ms__in=starts)
    return at_work.exists()


def _in_timeline(source_id: int, paths: list[str]) -> set[str]:
    """Return those of these files that the timeline records, visible or not."""
    rows = Segment.objects.filter(source=source_id, path__in=paths).exclude(state=SegmentState.DELETED)
    return set(rows.values_list("path", flat=True))
