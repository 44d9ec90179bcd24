"""Builds under way, and the files they need: none of these is deleted between being put and being published.

``engine.lanes.catalog.plan.orphans`` says how: while a build is open its row says since when; what it needs is taken
off the list of condemned files in the transaction that publishes it, which is refused if one of them was already going,
or if the row is not there any more: whoever sweeps has taken the build for dead.
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
    repository: Repository, kind: Why, *, branch_id: int | None = None, basis: BaseVersion | None = None
) -> Iterator[Build]:
    """Give a build that is open until the end of the block, whatever ends it; a crash leaves its row behind.

    A thread renews it each minute, so that others know that it goes on.
    """
    build = begin_build(repository, kind, branch_id=branch_id, basis=basis)
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
    repository: Repository, kind: Why, *, branch_id: int | None = None, basis: BaseVersion | None = None
) -> Build:
    """Note that files may be put from now on that nothing names yet."""
    told = {} if basis is None else {"head": basis.head, "snapshot": basis.snapshot, "sealed": list(basis.sealed)}
    at_ms = clock_ms()
    return Build.objects.create(
        repository_id=repository.pk, branch_id=branch_id, kind=kind, basis=told, begun_ms=at_ms, heartbeat_ms=at_ms
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
    """Note that a build puts no more files."""
    Build.objects.filter(pk=build.pk).delete()


def check_open(build: Build) -> None:
    """Raise FilesCondemned if the build was taken for dead: what it needs may be gone. Call it to publish it."""
    if not locked(Build.objects.filter(pk=build.pk)):
        raise FilesCondemned("the build was not heard of for so long that it was taken for dead")


def met_deletion(build: Build) -> bool:
    """Say whether files of the repository are being deleted, or were since the build began: one that it had put may be
    among them. Then it is made again."""
    marked = CondemnedFile.objects.filter(repository_id=build.repository_id, is_marked=True)
    return marked.filter(Q(deleted_ms=None) | Q(deleted_ms__gte=build.begun_ms)).exists()


def take_files(build: Build, needed: Iterable[str]) -> None:
    """Take the files (ids) that are about to be published off the list of condemned ones.

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
