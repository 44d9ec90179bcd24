"""Recognise a history of a table that the database has lost, and take the table's files from its last manifest.

A database that went back in time, or a new one, does not know the pointer in the folder. The files that the lost
history merged lie beside the results until they are deleted: by the listing alone, rows would count twice. The manifest
that the pointer names says which files hold the table's rows, and earlier manifests say which files it had before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F

from engine.core.errors import BadObject
from engine.lanes.tables.jobs import is_output_name
from engine.lanes.tables.plain.manifest import (
    MANIFESTS,
    ManifestFile,
    Pointer,
    decode_manifest,
    manifest_key,
    read_manifest,
)
from engine.storage import ObjectNotFound, ObjectStore
from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tables.models import DataSource, Policy, Segment
from webadmin.lanes.tables.policies import granularity_of, mark_dirty
from webadmin.lanes.tables.services.publish_manifest import lost_pointer
from webadmin.lanes.tables.states import SegmentState
from webadmin.lanes.tables.task_models import Task

ROWS_PER_STATEMENT = 1000
REASON = "the history that the database lost had replaced it"
READ_AGAIN = "it was merged in the database only, and the lost history had not replaced it"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostHistory:
    """The last manifest of a lost history; ``former`` are files of its earlier manifests that are not in the last."""

    pointer: Pointer
    live: dict[str, ManifestFile]
    former: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFilter:
    """Which files of a table's folder are not registered, because their rows are in other files or are in no table."""

    lost: LostHistory | None
    keeps_outputs: bool

    def refusal(self, path: str) -> tuple[str, str] | None:
        """Return code and reason why a file that the table does not know is left out; None to register it."""
        if self.lost is not None and path in self.lost.live:
            return None
        if self.lost is not None and path in self.lost.former:
            return "replaced_before", f"{path}: {REASON}"
        if is_output_name(path) and not self.keeps_outputs:
            text = (
                "it has the name of a result of a merge, and no result of this table is known by it: its rows are in "
            )
            return "unknown_output", f"{path}: {text}the files that were merged"
        return None


def filter_of(source: DataSource, lost: LostHistory | None, *, has_pointer: bool) -> FileFilter:
    """Return the filter of a scan. In a copy of a table without its manifests, results of merges are ordinary files."""
    is_copy = not has_pointer and not Task.objects.filter(source=source).exists()
    return FileFilter(lost=lost, keeps_outputs=is_copy)


def read_lost_history(source: DataSource, store: ObjectStore) -> LostHistory | None:
    """Return the history whose manifest the pointer names, None if the database knows the pointer or there is none.

    Raises BadObject if that manifest cannot be read or names a missing file; StorageError.
    """
    pointer = lost_pointer(source, store)
    if pointer is None:
        return None
    try:
        manifest = read_manifest(store)
    except ObjectNotFound as error:
        raise BadObject("manifest", -1, _advice("it does not exist"), pointer.manifest) from error
    assert manifest is not None, "the pointer was read"
    live = {file.path: file for file in manifest.files}
    _check_there(source, store, live, pointer)
    former = _earlier_files(store, source.published, pointer.sequence) - live.keys()
    return LostHistory(pointer=pointer, live=live, former=frozenset(former))


def _advice(text: str) -> str:
    return (
        f"{text}, and the database does not know what was in it: restore the object; or, to publish the state that the "
        "database has, delete _lithify/current.json"
    )


def _check_there(source: DataSource, store: ObjectStore, live: Collection[str], pointer: Pointer) -> None:
    """Raise BadObject if a file of the manifest is missing that replaces files the database has."""
    visible = Segment.objects.filter(source=source, state=SegmentState.VISIBLE, is_tombstone=False)
    known = set(visible.values_list("path", flat=True))
    for path in sorted(set(live) - known) if known else ():
        try:
            store.head(path)
        except ObjectNotFound as error:
            raise BadObject(
                "manifest", -1, _advice(f"it names {path}, which the store does not have"), pointer.manifest
            ) from error


def _earlier_files(store: ObjectStore, after: int, before: int) -> set[str]:
    """Return the files of the manifests between two sequences that still exist."""
    found: set[str] = set()
    keys = [info.key for info in store.list(MANIFESTS)]
    for key in keys:
        if manifest_key(after) < key < manifest_key(before):
            found.update(file.path for file in decode_manifest(store.get(key), key).files)
    return found


def follow_lost_history(source: DataSource, lost: LostHistory, *, context: ActionContext) -> None:
    """Hide the files that are in other files of the manifest, and forget merges that were not published.

    Files that were registered since the database went back stay, also those that were merged since: their rows are
    forgotten, and the scan that follows registers them again. Idempotent; nothing is published meanwhile, because the
    database still does not know the pointer.
    """
    with transaction.atomic():
        row = dialect.locked(DataSource.objects.filter(id=source.id)).get()
        hidden, again = _hidden(row, lost), _read_again(row, lost)
        if not hidden and not again:
            return
        _change(hidden, state=SegmentState.REPLACED, replaced_in=row.sequence + 1, reason=REASON)
        _change(again, state=SegmentState.DELETED, reason=READ_AGAIN)
        DataSource.objects.filter(id=row.id).update(sequence=F("sequence") + 1)
        granularity = granularity_of(Policy.objects.get(source=row))
        mark_dirty(row, granularity, {(one.start_ms, one.end_ms) for one in hidden})
        record_audit(
            actor=context.actor,
            action="follow_lost_history",
            target=str(row),
            detail={
                "manifest": lost.pointer.sequence,
                "hidden": len(hidden),
                "read_again": len(again),
                "why": context.why,
            },
        )


def _hidden(row: DataSource, lost: LostHistory) -> list[Segment]:
    """Return visible files whose rows are in other files of the manifest, and results of unpublished merges."""
    visible = Segment.objects.filter(source=row, is_tombstone=False, state=SegmentState.VISIBLE)
    return [
        one
        for one in visible
        if one.path not in lost.live
        and (one.added_sequence <= row.published or one.made_by_id is not None or one.path in lost.former)
    ]


def _read_again(row: DataSource, lost: LostHistory) -> list[Segment]:
    """Return the sources of unpublished merges that the manifest has, or that the lost history never had."""
    replaced = Segment.objects.filter(source=row, is_tombstone=False, state=SegmentState.REPLACED)
    return [
        one
        for one in replaced.filter(replaced_in__gt=row.published, replaced_by__isnull=False)
        if one.path in lost.live
        or (one.added_sequence > row.published and one.made_by_id is None and one.path not in lost.former)
    ]


def unregistered_files(source: DataSource, lost: LostHistory) -> list[str]:
    """Return files of the manifest that the table lacks after a scan, if files were hidden in their favour."""
    hidden = Segment.objects.filter(source=source, state=SegmentState.REPLACED, reason=REASON, unlinked_at_ms=None)
    if not hidden.exists():
        return []
    known = Segment.objects.filter(source=source).exclude(state=SegmentState.DELETED).values_list("path", flat=True)
    return sorted(lost.live.keys() - set(known))


def _change(segments: list[Segment], **columns: object) -> None:
    ids = [segment.id for segment in segments]
    for first in range(0, len(ids), ROWS_PER_STATEMENT):
        Segment.objects.filter(id__in=ids[first : first + ROWS_PER_STATEMENT]).update(**columns)
