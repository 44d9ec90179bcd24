"""Operator actions on chunks and bad files: exclude, compact now, retry, release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F

from engine.storage import ObjectStore, cached_store
from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tables.column_sizes import REASON_MAX
from webadmin.lanes.tables.errors import IntervalRefused
from webadmin.lanes.tables.models import BadFile, Chunk, ChunkOverride, DataSource, Policy, Segment
from webadmin.lanes.tables.policies import chunks_of, granularity_of
from webadmin.lanes.tables.segment_view import Interval
from webadmin.lanes.tables.services.register_files import add_files
from webadmin.lanes.tables.services.take_files import FILES_MAX, error_columns, read_again
from webadmin.lanes.tables.states import ChunkOverrideKind, RegistrationMode, SegmentState
from webadmin.schedule.services.operation import OperationOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksChanged:
    """The whole chunks that an interval touches, and which an action changed."""

    interval: Interval
    chunks: int

    def to_json(self) -> dict[str, Any]:
        """Return the result in the form that the action's page shows."""
        return {"start_ms": self.interval[0], "end_ms": self.interval[1], "chunks": self.chunks}


def override_chunks(
    source: DataSource, interval: Interval, kind: ChunkOverrideKind, *, context: ActionContext
) -> ChunksChanged:
    """Exclude the chunks that an interval touches, or compact them now, by ``kind``. Raises IntervalRefused."""
    with transaction.atomic():
        row, changed = _about(source, interval)
        if context.is_dry_run:
            return changed
        ChunkOverride.objects.create(
            source=row,
            kind=kind,
            start_ms=changed.interval[0],
            end_ms=changed.interval[1],
            actor=context.actor[:150],
            why=context.why[:REASON_MAX],
            created_at_ms=dialect.clock_ms(),
        )
        _schedule_recheck(row, changed.interval)
        _record(f"compact_{kind.value}", row, changed, context)
    return changed


def end_overrides(source: DataSource, interval: Interval, kind: ChunkOverrideKind, *, context: ActionContext) -> int:
    """End the active actions of this kind on chunks that an interval touches; return their number."""
    with transaction.atomic():
        row, changed = _about(source, interval)
        start, end = changed.interval
        held = ChunkOverride.objects.filter(source=row, kind=kind, ended_at_ms=None, start_ms__lt=end, end_ms__gt=start)
        found = list(held)
        if context.is_dry_run or not found:
            return len(found)
        held.update(ended_at_ms=dialect.clock_ms(), ended_because=f"{context.actor}: {context.why}"[:REASON_MAX])
        for each in found:
            _schedule_recheck(row, (each.start_ms, each.end_ms))
        _record(f"end_compact_{kind.value}", row, changed, context)
    return len(found)


def retry_chunks(source: DataSource, interval: Interval, *, context: ActionContext) -> int:
    """Release quarantined chunks for another attempt; return their number."""
    with transaction.atomic():
        row, changed = _about(source, interval)
        start, end = changed.interval
        held = Chunk.objects.filter(source=row, is_quarantined=True, start_ms__gte=start, end_ms__lte=end)
        count = held.count()
        if context.is_dry_run or not count:
            return count
        held.update(is_quarantined=False, quarantine_reason="", failures=0)
        _schedule_recheck(row, changed.interval)
        _record("retry_chunks", row, changed, context)
    return count


def release_files(source: DataSource, store: ObjectStore, paths: Sequence[str], *, context: ActionContext) -> list[str]:
    """Release quarantined files after repair; return the paths released.

    A file that was in the timeline is read again and added like a late file, or stays in quarantine with its current
    error. The record of a file that was never in the timeline is deleted: register it again. Raises
    RegistrationRefused.
    """
    row = DataSource.objects.select_related("policy").get(id=source.id)
    held = BadFile.objects.filter(source=row, released_at_ms=None, path__in=list(paths)).select_related("segment")
    of_timeline = {
        each.path: each.segment_id
        for each in held
        if each.segment is not None and each.segment.state == SegmentState.QUARANTINED
    }
    if context.is_dry_run or not held:
        return [each.path for each in held]
    read = read_again(row, store, list(of_timeline))
    with transaction.atomic():
        dialect.locked(DataSource.objects.filter(id=row.id)).get()
        now_ms = dialect.clock_ms()
        for one in read.refused:
            held.filter(path=one.offered.path).update(at_ms=now_ms, **error_columns(one))
        refused = {one.offered.path for one in read.refused}
        found = [each.path for each in held if each.path not in refused]
        former = Segment.objects.filter(id__in=[of_timeline[path] for path in found if path in of_timeline])
        former.filter(state=SegmentState.QUARANTINED).update(
            state=SegmentState.DELETED, reason=f"{context.actor} released it: it was read again"[:REASON_MAX]
        )
        BadFile.objects.filter(id__in=[each.id for each in held if each.path in found]).update(
            released_at_ms=now_ms, released_by=context.actor[:150], release_why=context.why[:REASON_MAX]
        )
        if read.good:
            add_files(row, read.good, mode=RegistrationMode.APPEND, context=context, columns=read.columns)
        record_audit(
            actor=context.actor, action="release_files", target=str(row), detail={"files": found, "why": context.why}
        )
    return found


def release_since(place: str, since_ms: int, context: ActionContext) -> list[OperationOutcome]:
    """Release the files of a table quarantined by failed merges since ``since_ms`` (wall time)."""
    tenant, _, name = place.partition("/")
    source = DataSource.objects.filter(tenant=tenant, name=name).first()
    if source is None:  # deleted since
        return []
    held = BadFile.objects.filter(source=source, released_at_ms=None, at_ms__gte=since_ms, job__isnull=False)
    paths = list(held.order_by("id").values_list("path", flat=True))
    outcomes = []
    for start in range(0, len(paths), FILES_MAX):
        batch = paths[start : start + FILES_MAX]
        done = release_files(source, cached_store(source.url), batch, context=context)
        left = tuple((path, "it still cannot be read") for path in batch if path not in set(done))
        outcomes.append(
            OperationOutcome(action="release_files", is_dry_run=context.is_dry_run, changed=tuple(done), left=left)
        )
    return outcomes


def _about(source: DataSource, interval: Interval) -> tuple[DataSource, ChunksChanged]:
    row = dialect.locked(DataSource.objects.filter(id=source.id)).get()
    if interval[0] >= interval[1]:
        raise IntervalRefused(f"the interval [{interval[0]}, {interval[1]}) ends before it begins")
    touched = chunks_of(granularity_of(Policy.objects.get(source=row)), *interval)
    return row, ChunksChanged(interval=(touched[0][0], touched[-1][1]), chunks=len(touched))


def _schedule_recheck(source: DataSource, interval: Interval) -> None:
    """Mark the known chunks of an interval as changed."""
    start, end = interval
    Chunk.objects.filter(source=source, start_ms__gte=start, end_ms__lte=end).update(is_dirty=True)
    DataSource.objects.filter(id=source.id).update(is_dirty=True, revision=F("revision") + 1)


def _record(action: str, source: DataSource, changed: ChunksChanged, context: ActionContext) -> None:
    record_audit(
        actor=context.actor, action=action, target=str(source), detail=changed.to_json() | {"why": context.why}
    )
