"""Publish the database state to readers: write a manifest of all visible files, then move the pointer to it.

The database is authoritative; a table whose sequence is ahead of the published one is written until both are equal.
Every step may be interrupted and repeated: a manifest of the same sequence has the same bytes, and the pointer never
moves back. A pointer unknown to the database comes from a lost history: publishing and deletions stop until an operator
rescans the table, which continues after that pointer.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F, Q

from engine.core.errors import LithifyError
from engine.lanes.tables.plain.manifest import (
    SEQUENCE_MAX,
    EncodedManifest,
    ManifestExists,
    ManifestFile,
    Pointer,
    encode_manifest,
    manifest_key,
    read_pointer,
    write_manifest,
)
from engine.lanes.tables.plain.manifest import Manifest as TableManifest
from engine.storage import ObjectStore
from webadmin.base.database import dialect
from webadmin.lanes.tables.column_sizes import REASON_MAX
from webadmin.lanes.tables.models import DataSource, Segment
from webadmin.lanes.tables.states import SegmentState
from webadmin.lanes.tables.task_models import Manifest

log = logging.getLogger(__name__)

LEASE_MS = 120_000
"""Lease of a publisher, after which a killed one is replaced."""
ROUNDS_MAX = 5
"""Maximum number of attempts of one publisher when the table changes concurrently."""
ROWS_AT_ONCE = 5_000
_COLUMNS = ("path", "size_bytes", "row_count", "start_ms", "end_ms", "first_ms", "last_ms", "version")


class PointerAhead(LithifyError):
    """The pointer names a manifest unknown to the database: the database is older than the table."""

    code = "pointer_ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The published state; ``is_written`` is set if this call moved the pointer."""

    sequence: int
    is_written: bool


def tables_behind() -> list[DataSource]:
    """Return the tables whose published manifest is behind the database."""
    return list(DataSource.objects.filter(sequence__gt=F("published")).order_by("id"))


def publish_manifest(source: DataSource, store: ObjectStore) -> Published:
    """Bring manifest and pointer up to date, unless another publisher holds the lease.

    Raises PointerAhead, BadObject (the pointer is invalid), StorageError.
    """
    if not _acquire_lease(source):
        return Published(sequence=source.published, is_written=False)
    try:
        for _ in range(ROUNDS_MAX):
            wanted, published = _sequences(source)
            if wanted <= published:
                break
            manifest = visible_manifest(source)
            if manifest is not None:
                _publish(source, store, manifest)
        return Published(sequence=_sequences(source)[1], is_written=True)
    except LithifyError as error:
        DataSource.objects.filter(id=source.id).update(publish_error=f"{type(error).__name__}: {error}"[:REASON_MAX])
        raise
    finally:
        DataSource.objects.filter(id=source.id).update(publisher_until_ms=None)


def _acquire_lease(source: DataSource) -> bool:
    now_ms = dialect.clock_ms()
    free = Q(publisher_until_ms=None) | Q(publisher_until_ms__lt=now_ms)
    return bool(DataSource.objects.filter(free, id=source.id).update(publisher_until_ms=now_ms + LEASE_MS))


def _sequences(source: DataSource) -> tuple[int, int]:
    return DataSource.objects.values_list("sequence", "published").get(id=source.id)


def visible_manifest(source: DataSource) -> EncodedManifest | None:
    """Return the manifest of all visible files, None if the table changed during the read.

    Rows are read and encoded a few thousand at a time: for a million files only the bytes of the manifest are in
    memory.
    """
    row = DataSource.objects.get(id=source.id)
    visible = Segment.objects.filter(source=row, state=SegmentState.VISIBLE, is_tombstone=False)
    rows_of_files = visible.order_by("start_ms", "path").values_list(*_COLUMNS).iterator(ROWS_AT_ONCE)
    files = (
        ManifestFile(
            path=path,
            size=size,
            rows=rows,
            start_ms=start,
            end_ms=end,
            min_time_ms=first,
            max_time_ms=last,
            version=version,
        )
        for path, size, rows, start, end, first, last, version in rows_of_files
    )
    columns = tuple((name, kind) for name, kind in row.columns)
    head = TableManifest(sequence=row.sequence, time_column=row.time_column, columns=columns, files=())
    encoded = encode_manifest(head, files)
    return encoded if _sequences(row)[0] == row.sequence else None


def _publish(source: DataSource, store: ObjectStore, manifest: EncodedManifest) -> None:
    if lost := lost_pointer(source, store):
        raise PointerAhead(_unknown_pointer(lost, manifest.sequence))
    sha256 = hashlib.sha256(manifest.data).hexdigest()
    _note_written(source, manifest, sha256)
    try:
        pointer = write_manifest(store, manifest)
    except ManifestExists as error:  # no pointer refers to it, so no reader sees it
        log.warning("manifest_exists table=%s reason=%s", source, error)
        Manifest.objects.filter(source=source, sequence=manifest.sequence, published_at_ms=None).delete()
        DataSource.objects.filter(id=source.id, sequence=manifest.sequence).update(sequence=F("sequence") + 1)
        return
    if pointer.sequence > manifest.sequence or pointer.sha256 != sha256:
        raise PointerAhead(_unknown_pointer(pointer, manifest.sequence))
    _note(source, manifest, pointer)


def _note_written(source: DataSource, manifest: EncodedManifest, sha256: str) -> None:
    """Record a manifest before the pointer names it, so that a publisher that is killed leaves no unknown pointer."""
    Manifest.objects.update_or_create(
        source=source,
        sequence=manifest.sequence,
        defaults={
            "path": manifest_key(manifest.sequence),
            "sha256": sha256,
            "file_count": manifest.file_count,
            "byte_count": manifest.byte_count,
            "row_count": manifest.row_count,
            "written_at_ms": dialect.clock_ms(),
        },
    )


def _unknown_pointer(pointer: Pointer, sequence: int) -> str:
    return (
        f"the pointer names manifest {pointer.sequence} ({pointer.sha256[:12]}), which the database, at {sequence}, "
        "does not know: it is older than the table, or another program writes to it; run `tables rescan` to continue "
        "behind it"
    )


def lost_pointer(source: DataSource, store: ObjectStore) -> Pointer | None:
    """Return the pointer if it names a manifest of a history that the database does not know, else None.

    An older pointer, which was restored, is not of a lost history. Raises BadObject, StorageError.
    """
    pointer = read_pointer(store)
    if pointer is None or pointer.sequence < _sequences(source)[1] or _is_known(source, pointer):
        return None
    return pointer


def continue_behind_pointer(source: DataSource, pointer: Pointer, files: Collection[ManifestFile]) -> None:
    """Record the manifest of a lost history, whose files these are, and continue the sequence after it.

    Only for callers that registered its files. Raises PointerAhead if no sequence is left.
    """
    if pointer.sequence >= SEQUENCE_MAX:
        raise PointerAhead(f"the pointer names manifest {pointer.sequence}, the last one there can be")
    now_ms = dialect.clock_ms()
    with transaction.atomic():
        row = dialect.locked(DataSource.objects.filter(id=source.id)).get()
        Manifest.objects.update_or_create(
            source=row,
            sequence=pointer.sequence,
            defaults={
                "path": pointer.manifest,
                "sha256": pointer.sha256,
                "file_count": len(files),
                "byte_count": sum(file.size for file in files),
                "row_count": sum(file.rows for file in files),
                "written_at_ms": now_ms,
                "published_at_ms": now_ms,
            },
        )
        DataSource.objects.filter(id=row.id).update(sequence=max(row.sequence, pointer.sequence) + 1)
    log.warning("pointer_passed table=%s pointer=%d sequence=%d", row, pointer.sequence, row.sequence)


def _is_known(source: DataSource, pointer: Pointer) -> bool:
    return Manifest.objects.filter(source=source, sequence=pointer.sequence, sha256=pointer.sha256).exists()


def _note(source: DataSource, manifest: EncodedManifest, pointer: Pointer) -> None:
    """Record what is published, and from when replaced files may be deleted."""
    now_ms = dialect.clock_ms()
    with transaction.atomic():
        row = dialect.locked(DataSource.objects.filter(id=source.id)).get()
        if row.published >= manifest.sequence:
            return
        Manifest.objects.filter(source=row, superseded_at_ms=None).update(superseded_at_ms=now_ms)
        Manifest.objects.update_or_create(
            source=row,
            sequence=manifest.sequence,
            defaults={
                "path": pointer.manifest,
                "sha256": pointer.sha256,
                "file_count": manifest.file_count,
                "byte_count": manifest.byte_count,
                "row_count": manifest.row_count,
                "written_at_ms": now_ms,
                "published_at_ms": now_ms,
                "superseded_at_ms": None,
            },
        )
        Segment.objects.filter(
            source=row, state=SegmentState.REPLACED, unlinked_at_ms=None, replaced_in__lte=manifest.sequence
        ).update(unlinked_at_ms=now_ms)
        DataSource.objects.filter(id=row.id).update(published=manifest.sequence, publish_error="")
    log.info("manifest_published table=%s sequence=%d files=%d", row, manifest.sequence, manifest.file_count)


def is_shown(source: DataSource, store: ObjectStore) -> bool:
    """Return whether the pointer in the store is the one published last.

    Otherwise an older or missing pointer is scheduled for publication, and a newer one is recorded as an error. Must be
    checked before any deletion.
    """
    published = _sequences(source)[1]
    there = read_pointer(store)
    if there is not None and there.sequence == published and _is_known(source, there):
        return True
    log.warning("pointer_not_there table=%s expected=%d found=%s", source, published, there and there.sequence)
    mine = DataSource.objects.filter(id=source.id, published=published)
    if there is None or there.sequence < published:
        mine.update(sequence=F("sequence") + 1)
    else:
        mine.update(publish_error=f"{PointerAhead.__name__}: {_unknown_pointer(there, published)}"[:REASON_MAX])
    return False
