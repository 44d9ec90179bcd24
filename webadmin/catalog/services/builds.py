"""Builds under way, and the files they need: none of these is deleted between being put and being published.

``engine.planning.staging.orphans`` says how: while a build is open its row says since when; what it needs is taken off
the list of condemned files in the transaction that publishes it, which is refused if one of them was already going.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from engine.planning.staging.branch import Basis
from engine.planning.staging.orphans import CondemnedFile as Condemned
from engine.planning.staging.orphans import is_publishable
from webadmin.catalog.errors import FilesCondemned
from webadmin.catalog.models import Build, CondemnedFile, Repository
from webadmin.catalog.states import Why
from webadmin.database.dialect import clock_ms, locked


@contextmanager
def open_build(
    repository: Repository, kind: Why, *, branch_id: int | None = None, basis: Basis | None = None
) -> Iterator[Build]:
    """Give a build that is open until the end of the block, whatever ends it; a crash leaves its row behind."""
    build = begin_build(repository, kind, branch_id=branch_id, basis=basis)
    try:
        yield build
    finally:
        end_build(build)


def begin_build(
    repository: Repository, kind: Why, *, branch_id: int | None = None, basis: Basis | None = None
) -> Build:
    """Note that files may be put from now on that nothing names yet."""
    told = {} if basis is None else {"head": basis.head, "snapshot": basis.snapshot, "sealed": list(basis.sealed)}
    at_ms = clock_ms()
    return Build.objects.create(
        repository_id=repository.pk, branch_id=branch_id, kind=kind, basis=told, begun_ms=at_ms, heartbeat_ms=at_ms
    )


def end_build(build: Build) -> None:
    """Note that a build puts no more files."""
    Build.objects.filter(pk=build.pk).delete()


def take_files(build: Build, needed: Iterable[str]) -> None:
    """Take the files (ids) that are about to be published off the list of condemned ones.

    Call it in the transaction that publishes them. Raises FilesCondemned: build again.
    """
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
