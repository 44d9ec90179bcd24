"""Create a table from an existing folder of Parquet files: list it once, read every footer, move nothing.

A rescan registers new files and quarantines missing ones. No other code lists the folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from django.db import transaction

from engine.core.errors import BadObject
from engine.lanes.tables.plain.foreign_formats import check_contents
from engine.lanes.tables.plain.hive import BadPartition, FoundFile, check_partition, find_files
from engine.lanes.tables.plain.manifest import POINTER, read_pointer
from engine.storage import ObjectNotFound, ObjectStore
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tables.models import DataSource, Segment
from webadmin.lanes.tables.services.lost_history import (
    FileFilter,
    LostHistory,
    filter_of,
    follow_lost_history,
    read_lost_history,
    unregistered_files,
)
from webadmin.lanes.tables.services.pause_foreign import pause_foreign
from webadmin.lanes.tables.services.publish_manifest import continue_behind_pointer, publish_manifest
from webadmin.lanes.tables.services.read_files import OfferedFile, ReadFile
from webadmin.lanes.tables.services.register_files import known_files
from webadmin.lanes.tables.services.settle_failures import quarantine
from webadmin.lanes.tables.services.sources import NewTable, create_table, find_table
from webadmin.lanes.tables.services.take_files import FILES_MAX, check_folders, record_bad_files, take_files
from webadmin.lanes.tables.states import RegistrationMode, SegmentState
from webadmin.schedule.services.operation import operation

REFUSALS_KEPT = 100
DRY_RUN_FILES_MAX = 1000
"""Number of files that a dry run reads; the others are only counted."""

Say = Callable[[str], None]


@dataclass(slots=True)
class Adoption:
    """Result of an adoption or rescan.

    Files by outcome, the first refusals with reasons, files of the table that are missing from the folder, the number
    of links and special files (which listings skip), and folders that could not be checked for a table of another
    format.
    """

    table: str
    url: str
    files: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    refusals: list[tuple[str, str]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    skipped: int = 0
    unchecked: list[str] = field(default_factory=list)
    sequence: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the result in the form that the command shows."""
        return asdict(self) | {"statuses": dict(self.statuses)}


def adopt_table(new: NewTable, store: ObjectStore, *, context: ActionContext, say: Say = lambda text: None) -> Adoption:
    """Create a table from a folder and publish its first manifest. A dry run reads the first files only.

    Raises ForeignTable, TableRefused, TableExists, RegistrationRefused, StorageError.
    """
    check_contents(store)
    if not context.is_dry_run:
        create_table(new, context=context)
        return _walk(find_table(new.tenant, new.name), store, context, say)
    with transaction.atomic():
        create_table(new, context=ActionContext(actor=context.actor, why=context.why))
        found = _walk(find_table(new.tenant, new.name), store, context, say)
        transaction.set_rollback(True)
    return found


def rescan_table(
    source: DataSource, store: ObjectStore, *, context: ActionContext, say: Say = lambda text: None
) -> Adoption:
    """Register new files of a table's folder; quarantine files that are missing from it.

    Raises ForeignTable before anything is read; the table is then paused, unless this is a dry run.
    """
    with pause_foreign(source, is_dry_run=context.is_dry_run):
        check_contents(store)
    return _walk(source, store, context, say)


def _walk(source: DataSource, store: ObjectStore, context: ActionContext, say: Say) -> Adoption:
    adoption = Adoption(table=str(source), url=source.url)
    lost = read_lost_history(source, store)
    filtered = filter_of(source, lost, has_pointer=read_pointer(store) is not None)
    if lost is not None and not context.is_dry_run:
        follow_lost_history(source, lost, context=context)
    adoption.unchecked = list(check_folders(source, store, (), is_dry_run=context.is_dry_run))
    keys: tuple[str, ...] | None = tuple(source.partition_columns) or None
    seen: set[str] = set()
    skipped_before = store.usage.skipped()

    def report(count: int, key: str) -> None:
        say(f"{count} objects seen, at {key}")

    for batch in _batches(find_files(store, progress=report)):
        seen.update(file.path for file in batch)
        adoption.files += len(batch)
        if context.is_dry_run and adoption.files > DRY_RUN_FILES_MAX:
            continue
        keys, fitting = _fitting(source, batch, keys, context, adoption)
        _take(source, store, _wanted(source, fitting, filtered, adoption), context, adoption)
        say(f"{adoption.files} files: " + ", ".join(f"{count} {name}" for name, count in adoption.statuses.items()))
    adoption.skipped = store.usage.skipped() - skipped_before
    if keys is not None and not context.is_dry_run:
        DataSource.objects.filter(id=source.id).update(partition_columns=list(keys))
    visible = Segment.objects.filter(source=source, state=SegmentState.VISIBLE, is_tombstone=False)
    missed = sorted(set(visible.values_list("path", flat=True)) - seen)
    adoption.gone = [path for path in missed if not _is_there(store, path)]  # outputs may be new since the listing
    if source.published and read_pointer(store) is None:
        _note(
            adoption,
            POINTER,
            "pointer_gone",
            "the pointer is gone: the whole folder may be away, and stays in the table",
        )
    elif not context.is_dry_run:
        if adoption.gone:
            _keep_out_gone(source, adoption.gone, context)
        adoption.sequence = _publish(source, store, lost, adoption)
    return adoption


def _publish(source: DataSource, store: ObjectStore, lost: LostHistory | None, adoption: Adoption) -> int:
    """Publish the table and return the sequence; 0 if files of a lost history could not be registered."""
    if lost is not None:
        if missing := unregistered_files(source, lost):
            for path in missing:
                _note(
                    adoption,
                    path,
                    "not_published",
                    f"{path}: the lost history's manifest names it: nothing is "
                    "published until a rescan can register it",
                )
            return 0
        continue_behind_pointer(source, lost.pointer, lost.live.values())
    return publish_manifest(source, store).sequence


def _wanted(
    source: DataSource, files: Sequence[FoundFile], filtered: FileFilter, adoption: Adoption
) -> list[FoundFile]:
    """Return the files to register or to recognise; note those that are left out."""
    known = known_files(source, [file.path for file in files])
    wanted = []
    for file in files:
        refusal = None if file.path in known else filtered.refusal(file.path)
        if refusal is None:
            wanted.append(file)
        else:
            _note(adoption, file.path, *refusal)
    return wanted


def _is_there(store: ObjectStore, path: str) -> bool:
    try:
        store.head(path)
    except ObjectNotFound:
        return False
    return True


def _keep_out_gone(source: DataSource, paths: Sequence[str], context: ActionContext) -> None:
    """Quarantine files that were deleted from the store: readers could not read the table with them."""
    with operation() as run:
        row = dialect.locked(DataSource.objects.filter(id=source.id)).get()
        lost = Segment.objects.filter(source=row, path__in=paths, state=SegmentState.VISIBLE)
        bad = [
            (one, BadObject("file", -1, "it is gone: it was in the table, and the store does not have it", one.path))
            for one in lost.select_related("source")
        ]
        run.write(
            "quarantine_files", context, target=str(row), detail={"files": [one.path for one, _ in bad], "jobs": []}
        )
        quarantine(row, bad)


def _fitting(
    source: DataSource,
    batch: Iterable[FoundFile],
    keys: tuple[str, ...] | None,
    context: ActionContext,
    adoption: Adoption,
) -> tuple[tuple[str, ...] | None, list[FoundFile]]:
    """Return the files whose folders have the same partition keys as all others; quarantine the rest."""
    fitting, unknown_files = [], []
    for file in batch:
        try:
            keys = check_partition(file, keys)
        except BadPartition as error:
            offered = OfferedFile(path=file.path, size_bytes=file.size)
            unknown_files.append(ReadFile(offered=offered, code=error.code, message=str(error)))
            _note(adoption, file.path, error.code, str(error))
            continue
        fitting.append(file)
    if unknown_files and not context.is_dry_run:
        record_bad_files(source, unknown_files)
    return keys, fitting


def _take(
    source: DataSource, store: ObjectStore, files: Iterable[FoundFile], context: ActionContext, adoption: Adoption
) -> None:
    offered = [OfferedFile(path=file.path, size_bytes=file.size) for file in files]
    fresh = DataSource.objects.select_related("policy").get(id=source.id)
    taken = take_files(
        fresh, store, offered, mode=RegistrationMode.APPEND, context=context, keeps_bad=True, is_checked=True
    )
    for answer in taken.answers:
        if answer.code:
            _note(adoption, answer.path, answer.code, answer.message)
        else:
            adoption.statuses[answer.status] += 1


def _note(adoption: Adoption, path: str, code: str, message: str) -> None:
    adoption.statuses[code] += 1
    if len(adoption.refusals) < REFUSALS_KEPT:
        adoption.refusals.append((path, message))


def _batches(files: Iterator[FoundFile]) -> Iterator[list[FoundFile]]:
    while batch := list(islice(files, FILES_MAX)):
        yield batch
