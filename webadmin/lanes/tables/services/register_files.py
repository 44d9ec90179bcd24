"""Register files in a timeline and drop intervals, each call in one transaction.

The files were read before: decisions use their facts and the current timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from engine.lanes.tables.plan.arrivals import (
    Arrival,
    ArrivalRefused,
    ArrivingFile,
    Stamp,
    append_files,
    replace_interval,
)
from engine.lanes.tables.plan.granularity import Granularity
from engine.lanes.tables.plan.model import Segment as PlannedSegment
from engine.lanes.tables.plan.visibility import version_above
from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tables.errors import IntervalRefused, RegistrationRefused
from webadmin.lanes.tables.models import DataSource, Policy, Registration, Segment
from webadmin.lanes.tables.policies import chunks_of, granularity_of, mark_dirty
from webadmin.lanes.tables.segment_view import Interval, closure, merged, touching
from webadmin.lanes.tables.states import RegistrationMode, SegmentState

ROWS_PER_STATEMENT = 1000

Columns = Callable[[DataSource], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """Facts read from a file.

    ``path`` is relative to the table's URL; the smallest and largest time are both inclusive. The checksum
    distinguishes it from another file of the same path and size.
    """

    path: str
    size_bytes: int
    row_count: int
    first_ms: int
    last_ms: int
    checksum: str = ""

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """Result of a call: the sequence in which readers see it, and its files.

    The files are those added, already known, restamped and replaced.
    """

    sequence: int
    added: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    restamped: int = 0
    hidden: int = 0
    interval: Interval | None = None


@dataclass(slots=True)
class _Call:
    """A call in progress; it holds the table's lock."""

    source: DataSource
    granularity: Granularity
    context: ActionContext
    now_ms: int
    facts: Mapping[int, FileFacts] = field(default_factory=dict)
    known: tuple[str, ...] = ()


def add_files(
    source: DataSource,
    files: Sequence[FileFacts],
    *,
    mode: RegistrationMode,
    context: ActionContext,
    interval: Interval | None = None,
    columns: Columns | None = None,
    refused: int = 0,
) -> Registered:
    """Register files beside existing ones (append) or in place of all within ``interval`` (replace).

    Files already registered are left unchanged. ``columns`` computes the new schema columns of the table's row from the
    locked row; None leaves them unchanged. Raises RegistrationRefused; nothing is changed then.
    """
    if (interval is None) == (mode is RegistrationMode.REPLACE):
        raise RegistrationRefused("an interval is said of what is replaced, and only of that")
    with transaction.atomic():
        call, fresh = _begin(source, context, files)
        if not fresh:
            return Registered(sequence=call.source.sequence, known=call.known)
        arriving = [
            ArrivingFile(number=number, first_ms=fact.first_ms, last_ms=fact.last_ms) for number, fact in fresh.items()
        ]
        arrival = _arrival(call, arriving, mode, interval)
        if context.is_dry_run:
            return _told(call, arrival, call.source.sequence)
        return _apply(call, arrival, mode, columns, refused)


def drop_interval(source: DataSource, interval: Interval, *, context: ActionContext) -> Registered:
    """Hide the files of an interval of whole chunks; they are deleted later. Raises RegistrationRefused."""
    with transaction.atomic():
        call, _ = _begin(source, context, ())
        arrival = _arrival(call, [], RegistrationMode.DROP, interval)
        if context.is_dry_run or not arrival.hidden:
            return _told(call, arrival, call.source.sequence)
        return _apply(call, arrival, RegistrationMode.DROP, None, 0, dropped=interval)


def _begin(
    source: DataSource, context: ActionContext, files: Sequence[FileFacts]
) -> tuple[_Call, dict[int, FileFacts]]:
    """Lock the table; return the call and the files that are new."""
    row = dialect.locked(DataSource.objects.filter(id=source.id)).get()
    policy = Policy.objects.get(source=row)
    call = _Call(row, granularity_of(policy), context, dialect.clock_ms())
    there = known_files(row, [fact.path for fact in files])
    fresh: dict[int, FileFacts] = {}
    known = []
    for number, fact in enumerate(files):
        if fact.path not in there:
            fresh[number] = fact
        elif is_same(there[fact.path], fact.size_bytes, fact.checksum):
            known.append(fact.path)
        else:
            raise RegistrationRefused(f"{fact.path}: another file of this path is in the table already")
    call.facts, call.known = fresh, tuple(known)
    return call, fresh


def known_files(source: DataSource, paths: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return size and checksum of the given files that the table has, or had and has not deleted yet."""
    found: dict[str, tuple[int, str]] = {}
    for first in range(0, len(paths), ROWS_PER_STATEMENT):
        rows = Segment.objects.filter(source=source, path__in=paths[first : first + ROWS_PER_STATEMENT])
        rows = rows.exclude(state=SegmentState.DELETED).filter(is_tombstone=False)
        found |= {path: (size, checksum) for path, size, checksum in rows.values_list("path", "size_bytes", "checksum")}
    return found


def is_same(known: tuple[int, str], size_bytes: int, checksum: str) -> bool:
    """Return whether a file equals the registered one of its path; checksums are compared only if both are known."""
    size, known_rows = known
    return size == size_bytes and (not checksum or not known_rows or known_rows == checksum)


def _arrival(
    call: _Call, arriving: Sequence[ArrivingFile], mode: RegistrationMode, interval: Interval | None
) -> Arrival:
    chunk_at = call.granularity.chunk_of
    try:
        if interval is None:
            hulls = [call.granularity.hull(file.first_ms, file.last_ms + 1) for file in arriving]
            for hull in merged(hulls):
                chunks_of(call.granularity, *hull)
            visible, _ = closure(call.source, call.granularity, hulls)
            return append_files(arriving, visible, chunk_at, _version(call, visible))
        chunks_of(call.granularity, *interval) if interval[0] < interval[1] else None
        visible = touching(call.source, [interval])
        return replace_interval(arriving, visible, interval, chunk_at, _version(call, visible))
    except ArrivalRefused as error:
        kind = RegistrationRefused if interval is None else IntervalRefused
        raise kind(_with_paths(str(error), call.facts)) from error


def _with_paths(message: str, facts: Mapping[int, FileFacts]) -> str:
    """Add the path of the file to a refusal that names its number."""
    for number, fact in facts.items():
        if message.startswith(f"file {number} "):
            return f"{fact.path} {message.removeprefix(f'file {number} ')}"
    return message


def _version(call: _Call, visible: Iterable[PlannedSegment]) -> str:
    return version_above(call.now_ms, (one.version for one in visible))


def _told(call: _Call, arrival: Arrival, sequence: int) -> Registered:
    stamps = [*arrival.stamps, *arrival.restamped]
    return Registered(
        sequence=sequence,
        added=tuple(call.facts[stamp.number].path for stamp in arrival.stamps),
        known=call.known,
        restamped=len(arrival.restamped),
        hidden=len(arrival.hidden),
        interval=(min(one.start_ms for one in stamps), max(one.end_ms for one in stamps)) if stamps else None,
    )


def _apply(
    call: _Call,
    arrival: Arrival,
    mode: RegistrationMode,
    columns: Columns | None,
    refused: int,
    dropped: Interval | None = None,
) -> Registered:
    """Write the changes of a call; the table stays locked until the transaction ends."""
    source, sequence = call.source, call.source.sequence + 1
    registered = _told(call, arrival, sequence)
    hidden = Segment.objects.filter(id__in=arrival.hidden, source=source, state=SegmentState.VISIBLE)
    touched = set(hidden.values_list("start_ms", "end_ms")) | {
        (one.start_ms, one.end_ms) for one in (*arrival.stamps, *arrival.restamped)
    }
    reason = "its interval was dropped" if mode is RegistrationMode.DROP else "its interval was replaced"
    hidden.update(state=SegmentState.REPLACED, replaced_in=sequence, reason=reason)
    move_files(source, arrival.restamped, call.granularity)
    registration = Registration.objects.create(
        source=source,
        mode=mode,
        actor=call.context.actor[:150],
        why=call.context.why[:500],
        file_count=len(registered.added),
        byte_count=sum(fact.size_bytes for fact in call.facts.values()),
        row_count=sum(fact.row_count for fact in call.facts.values()),
        refused_count=refused,
        start_ms=dropped[0] if dropped else registered.interval and registered.interval[0],
        end_ms=dropped[1] if dropped else registered.interval and registered.interval[1],
        sequence=sequence,
        at_ms=call.now_ms,
    )
    rows = [_row(call, stamp, registration, sequence) for stamp in arrival.stamps]
    if dropped is not None:
        rows.append(_tombstone(call, dropped, registration, sequence))
        touched.add(dropped)
    Segment.objects.bulk_create(rows, batch_size=ROWS_PER_STATEMENT)
    DataSource.objects.filter(id=source.id).update(sequence=sequence, **(columns(source) if columns else {}))
    mark_dirty(source, call.granularity, touched)
    record_audit(
        actor=call.context.actor,
        action=f"{mode.value}_files" if dropped is None else "drop_interval",
        target=str(source),
        detail=_detail(registered, registration, call.context),
    )
    return registered


def _detail(registered: Registered, registration: Registration, context: ActionContext) -> dict[str, Any]:
    return {
        "registration": registration.id,
        "files": len(registered.added),
        "bytes": registration.byte_count,
        "rows": registration.row_count,
        "hidden": registered.hidden,
        "restamped": registered.restamped,
        "start_ms": registration.start_ms,
        "end_ms": registration.end_ms,
        "why": context.why,
    }


def move_files(source: DataSource, stamps: Sequence[Stamp], granularity: Granularity) -> None:
    """Move existing files to another place in the timeline, under a version that is unused there."""
    if not stamps:
        return
    rows = [
        (
            stamp.number,
            stamp.start_ms,
            stamp.end_ms,
            granularity.chunk_of(stamp.start_ms)[1] < stamp.end_ms,
            stamp.version,
            stamp.partition,
        )
        for stamp in stamps
    ]
    columns = ("start_ms", "end_ms", "is_spanning", "version", "partition")
    dialect.update_rows(Segment, ("id",), columns, rows)


def _row(call: _Call, stamp: Stamp, registration: Registration, sequence: int) -> Segment:
    fact = call.facts[stamp.number]
    return Segment(
        source=call.source,
        path=fact.path,
        folder=fact.folder,
        start_ms=stamp.start_ms,
        end_ms=stamp.end_ms,
        is_spanning=call.granularity.chunk_of(stamp.start_ms)[1] < stamp.end_ms,
        version=stamp.version,
        partition=stamp.partition,
        size_bytes=fact.size_bytes,
        row_count=fact.row_count,
        first_ms=fact.first_ms,
        last_ms=fact.last_ms,
        checksum=fact.checksum,
        registration=registration,
        added_sequence=sequence,
        created_at_ms=call.now_ms,
    )


def _tombstone(call: _Call, interval: Interval, registration: Registration, sequence: int) -> Segment:
    start, end = interval
    return Segment(
        source=call.source,
        start_ms=start,
        end_ms=end,
        is_spanning=call.granularity.chunk_of(start)[1] < end,
        version=version_above(call.now_ms, [_highest(call.source, interval)]),
        partition=0,
        is_tombstone=True,
        size_bytes=0,
        row_count=0,
        registration=registration,
        added_sequence=sequence,
        created_at_ms=call.now_ms,
    )


def _highest(source: DataSource, interval: Interval) -> str:
    """Return the highest version that an interval has had."""
    start, end = interval
    rows = Segment.objects.filter(source=source, start_ms__lt=end, end_ms__gt=start)
    return rows.order_by("-version").values_list("version", flat=True).first() or ""
