"""Open builds and the files they need: such a file is not deleted between its upload and its publication.

See ``engine.lanes.catalog.plan.orphans``: while a build is open its row records its start. The transaction that
publishes it removes the files it needs from the list of condemned files. Publication is refused if the deletion of one
of them has begun, or if the build's row is missing: garbage collection has taken the build for dead.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from django.db import DatabaseError, connections
from django.db.models import Q

from engine.lanes.catalog.plan.branch import BaseVersion
from engine.lanes.catalog.plan.orphans import CondemnedFile as Condemned
from engine.lanes.catalog.plan.orphans import is_publishable
from webadmin.base.database.dialect import clock_ms, locked
from webadmin.lanes.catalog.errors import FilesCondemned
from webadmin.lanes.catalog.models import Build, CondemnedFile, Repository
from webadmin.lanes.catalog.states import Why

log = logging.getLogger(__name__)

BEAT_SECONDS = 60.0


@contextmanager
def open_build(
    repository: Repository, kind: Why, *, branch_id: int | None = None, base_version: BaseVersion | None = None
) -> Iterator[Build]:
    """Yield a build that is open until the end of the block; after a crash its row remains.

    A thread renews its heartbeat each minute.
    """
    build = begin_build(repository, kind, branch_id=branch_id, base_version=base_version)
    is_over = threading.Event()
    beat = threading.Thread(target=_beat, args=(build.pk, is_over), name=f"build-{build.pk}", daemon=True)
    beat.start()
    try:
        yield build
    finally:
        is_over.set()
        beat.join()
        end_build(build)


def begin_build(
    repository: Repository, kind: Why, *, branch_id: int | None = None, base_version: BaseVersion | None = None
) -> Build:
    """Record that files which nothing references yet may be written from now on."""
    data = (
        {}
        if base_version is None
        else {"head": base_version.head, "snapshot": base_version.snapshot, "sealed": list(base_version.sealed)}
    )
    at_ms = clock_ms()
    return Build.objects.create(
        repository_id=repository.pk,
        branch_id=branch_id,
        kind=kind,
        base_version=data,
        begun_ms=at_ms,
        heartbeat_ms=at_ms,
    )


def _beat(build_id: int, is_over: threading.Event) -> None:
    try:
        while not is_over.wait(BEAT_SECONDS):
            try:
                Build.objects.filter(pk=build_id).update(heartbeat_ms=clock_ms())
            except DatabaseError as error:
                log.warning("build_not_renewed build=%d error=%s", build_id, error)
    finally:
        connections.close_all()


def end_build(build: Build) -> None:
    """Record that a build writes no more files."""
    Build.objects.filter(pk=build.pk).delete()


def check_open(build: Build) -> None:
    """Raise FilesCondemned if the heartbeat of the build has expired: its files may be deleted."""
    if not locked(Build.objects.filter(pk=build.pk)):
        raise FilesCondemned("the heartbeat of the build has expired")


def met_deletion(build: Build) -> bool:
    """Return whether files of the repository are being deleted, or were since the build began.

    One of the build's own files may be among them, so it must be built again.
    """
    marked = CondemnedFile.objects.filter(repository_id=build.repository_id, is_marked=True)
    return marked.filter(Q(deleted_ms=None) | Q(deleted_ms__gte=build.begun_ms)).exists()


def take_files(build: Build, needed: Iterable[str]) -> None:
    """Remove the files (ids) that are about to be published from the list of condemned files.

    Call it in the transaction that publishes them. Raises FilesCondemned: build again.
    """
    check_open(build)
    wanted = set(needed)
    rows = locked(CondemnedFile.objects.filter(repository_id=build.repository_id).order_by("id"))
    listed = [row for row in rows if row.file_id in wanted]
    known = [
        Condemned(
            id=row.file_id,
            since=row.since_ms / 1000,
            is_marked=row.is_marked,
            deleted_at=None if row.deleted_ms is None else row.deleted_ms / 1000,
        )
        for row in listed
    ]
    if not is_publishable(wanted, known, begun_at=build.begun_ms / 1000):
        raise FilesCondemned("a file that the build needs was being deleted while it was made")
    CondemnedFile.objects.filter(pk__in=[row.pk for row in listed]).delete()
