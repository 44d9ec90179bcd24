"""Asynchronous imports: each runs in a thread of the web process and renews the heartbeat of its row.

Nothing is published before the end, so an import whose process died had no effect and can be started again.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import connections, transaction
from django.db.models import F

from engine.core.errors import LithifyError
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.catalog.api.errors import ImportCancelled, ImportEnded, ImportMissing, ImportsBusy
from webadmin.lanes.catalog.api.models import ERROR_MAX, ImportRun, ImportState
from webadmin.lanes.catalog.models import Repository
from webadmin.lanes.catalog.services.commits import NewCommit
from webadmin.lanes.catalog.services.import_objects import ImportSource, import_objects

log = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
SILENT_MS = 60_000
"""Age of the last heartbeat after which an import counts as failed because its process died."""
KEPT_MS = 7 * 86_400_000
RUNNING_MAX = 4
"""Maximum number of concurrent imports of one tenant."""
NAME_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The sources of an import, its branch, and the commit to create."""

    repository: Repository
    branch: str
    sources: Sequence[ImportSource]
    commit: NewCommit
    context: ActionContext


@dataclass(slots=True)
class _Progress:
    """State shared by the importing thread and its heartbeat."""

    taken: int = 0
    is_cancelled: bool = False
    is_over: threading.Event = field(default_factory=threading.Event)

    def note(self, taken: int) -> None:
        """Record the number of imported objects. Raises ImportCancelled if the import was cancelled."""
        self.taken = taken
        if self.is_cancelled:
            raise ImportCancelled("the import was cancelled")


def start_import(wanted: Wanted) -> ImportRun:
    """Start an import and return its row. Raises ImportsBusy."""
    run = _new_run(wanted)
    threading.Thread(target=_run_and_close, args=(run, wanted), name=f"import-{run.name}", daemon=True).start()
    return run


def find_import(repository: Repository, branch: str, name: str) -> ImportRun:
    """Return an import; one whose process died is marked as failed. Raises ImportMissing."""
    run = ImportRun.objects.filter(repository=repository, branch=branch, name=name).first()
    if run is None:
        raise ImportMissing(f"the branch {branch} has no import {name[:40]!r}")
    if is_silent(run):
        _end(run, ImportState.FAILED, error="the process that ran it ended: nothing was published, start it again")
        run.refresh_from_db()
    return run


def is_silent(run: ImportRun) -> bool:
    """Return whether the heartbeat of an import has expired."""
    return run.state == ImportState.RUNNING and run.heartbeat_ms < dialect.clock_ms() - SILENT_MS


def cancel_import(repository: Repository, branch: str, name: str) -> None:
    """Cancel an import; one that is already publishing completes. Raises ImportMissing, ImportEnded."""
    run = find_import(repository, branch, name)
    if not ImportRun.objects.filter(pk=run.pk, state=ImportState.RUNNING).update(is_cancelled=True):
        raise ImportEnded("the import has ended already")


def run_import(run: ImportRun, wanted: Wanted) -> None:
    """Run an import, renew its heartbeat, and record its outcome in the row."""
    progress = _Progress()
    beat = threading.Thread(target=_beat, args=(run, progress), name=f"beat-{run.name}", daemon=True)
    beat.start()
    try:
        made = import_objects(
            wanted.repository,
            wanted.branch,
            wanted.sources,
            wanted.commit,
            context=wanted.context,
            progress=progress.note,
        )
        _end(run, ImportState.COMPLETED, taken=progress.taken, commit_id=made.commit_id)
    except LithifyError as error:
        _end(run, ImportState.FAILED, taken=progress.taken, error=str(error))
    except Exception:  # any error: without an outcome in the row the client would poll until the heartbeat expires
        log.exception("import_failed name=%s", run.name)
        _end(run, ImportState.FAILED, taken=progress.taken, error="the server failed; its log says why")
    finally:
        progress.is_over.set()
        beat.join()


def _new_run(wanted: Wanted) -> ImportRun:
    now_ms = dialect.clock_ms()
    running = ImportRun.objects.filter(
        repository__tenant=wanted.repository.tenant,
        state=ImportState.RUNNING,
        heartbeat_ms__gte=now_ms - SILENT_MS,
    )
    with transaction.atomic():
        ImportRun.objects.filter(heartbeat_ms__lt=now_ms - KEPT_MS).delete()
        if running.count() >= RUNNING_MAX:
            raise ImportsBusy(f"{RUNNING_MAX} imports of this tenant run already: wait for one of them")
        return ImportRun.objects.create(
            repository=wanted.repository,
            branch=wanted.branch,
            name=secrets.token_hex(NAME_BYTES),
            begun_ms=now_ms,
            heartbeat_ms=now_ms,
        )


def _run_and_close(run: ImportRun, wanted: Wanted) -> None:
    try:
        run_import(run, wanted)
    finally:
        connections.close_all()


def _beat(run: ImportRun, progress: _Progress) -> None:
    try:
        while not progress.is_over.wait(BEAT_SECONDS):
            rows = ImportRun.objects.filter(pk=run.pk)
            rows.update(heartbeat_ms=dialect.clock_ms(), objects_taken=progress.taken)
            progress.is_cancelled = rows.filter(is_cancelled=True).exists()
    finally:
        connections.close_all()


def _end(run: ImportRun, state: ImportState, *, taken: int | None = None, commit_id: str = "", error: str = "") -> None:
    ImportRun.objects.filter(pk=run.pk, state=ImportState.RUNNING).update(
        state=state,
        heartbeat_ms=dialect.clock_ms(),
        objects_taken=F("objects_taken") if taken is None else taken,
        commit_id=commit_id,
        error=error[:ERROR_MAX].replace("\0", "?"),
    )
