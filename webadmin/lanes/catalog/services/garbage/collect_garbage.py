"""Delete unreachable data: files of lost builds, replaced snapshots, objects, rows of retired tokens, finished runs.

Files are listed first; afterwards the rows are read in one snapshot. An unreachable file is condemned, and deleted when
its grace period is over and it is still unreachable (``engine.lanes.catalog.plan.orphans``). An object is condemned
when it is older than anything that could still be linked, and deleted by a later round (``condemned_objects.py``). Any
read error ends the collection before anything is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.core.errors import LithifyError
from engine.formats.ranges.layout import Kind
from engine.lanes.catalog.files import FOLDERS, CatalogFiles
from engine.lanes.catalog.plan.orphans import CondemnedFile as Condemned
from engine.lanes.catalog.plan.orphans import FileSweep, StoredFile, plan_sweep
from engine.storage import StorageError
from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import clock_ms
from webadmin.lanes.catalog.compaction_policies import policy_of
from webadmin.lanes.catalog.errors import CatalogRefused
from webadmin.lanes.catalog.lane_models import ACTOR_MAX, REASON_MAX, Collection, Compaction
from webadmin.lanes.catalog.models import CondemnedFile, Repository
from webadmin.lanes.catalog.places import catalog_store
from webadmin.lanes.catalog.reachable import Reach
from webadmin.lanes.catalog.services.compaction.end_compactions import ACTOR, end_all
from webadmin.lanes.catalog.services.garbage.condemned_objects import ObjectSweep
from webadmin.lanes.catalog.services.garbage.garbage_counts import Collected
from webadmin.lanes.catalog.services.garbage.sweep_rows import sweep_builds, sweep_repository, sweep_tokens
from webadmin.lanes.catalog.services.repositories import begin_removal, is_removable
from webadmin.lanes.catalog.states import RepositoryState
from webadmin.schedule.rounds import run_round
from webadmin.schedule.services.guard_deletions import allow_deletions

log = logging.getLogger(__name__)

CLOCK_SKEW_MAX_S = 900.0
"""Tolerance for the clock of the store, which gives the modification times of files, in seconds."""
FILES_AT_ONCE = 500
OBJECTS_EVERY_MS = 24 * 3_600_000
COLLECTIONS_KEPT = 100


@dataclass(slots=True)
class CollectReport:
    """The number of repositories, the deletions in them, and the repositories that failed with their errors."""

    repositories: int = 0
    deleted: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def collect_all() -> CollectReport:
    """Collect garbage in every repository; an error in one does not stop the others."""
    sweep_builds()
    done = run_round("catalog_not_collected", list(Repository.objects.order_by("pk")), _collect_one)
    return CollectReport(repositories=len(done.named) + len(done.failed), deleted=sum(done.reports), failed=done.failed)


def _collect_one(listed: Repository) -> int:
    repository = Repository.objects.filter(pk=listed.pk).first()  # reload: a round may take hours
    if repository is None:
        return 0
    if repository.state != RepositoryState.ACTIVE:
        return _remove(repository)
    done = collect_garbage(repository, has_objects=_are_objects_due(repository))
    return done.files_deleted + done.objects_deleted + done.rows_deleted


def _remove(repository: Repository) -> int:
    """Delete all of a deleted repository when its grace period is over; return the number of deleted objects.

    Raises LogBehind if the database went back in time: it may have lost the restoration of the repository.
    """
    end_all(repository, because="the repository was deleted")
    if repository.state == RepositoryState.DELETED and not is_removable(repository):
        return 0
    allow_deletions(mark=True)  # deleting and restoring a repository are not commands of the log
    if repository.state == RepositoryState.DELETED and not begin_removal(repository):
        return 0
    # Deletion of the whole repository begins here.
    return sweep_repository(repository)


def collect_garbage(
    repository: Repository, *, has_objects: bool = True, context: ActionContext | None = None
) -> Collected:
    """Collect garbage in a repository. A dry run returns what would be condemned and deleted now.

    Raises StorageError, BadObject, CatalogRefused for a deleted repository, LogBehind if the database went back in
    time.
    """
    if repository.state != RepositoryState.ACTIVE:
        raise CatalogRefused(f"{repository} is deleted: nothing is collected in it, its files go as a whole")
    context = context or ActionContext(actor=ACTOR, why="time has come")
    begun_ms = clock_ms()
    done = Collected()
    try:
        _collect(repository, done, has_objects, context)
    except LithifyError as error:
        if not context.is_dry_run:
            _keep(repository, done, begun_ms, has_objects, context, str(error))
        raise
    if not context.is_dry_run:
        _keep(repository, done, begun_ms, has_objects, context, "")
    return done


def _collect(repository: Repository, done: Collected, has_objects: bool, context: ActionContext) -> None:
    policy = policy_of(repository)
    reach = Reach(repository, has_objects=has_objects)
    sizes: dict[str, int] = {}
    kinds: dict[str, bytes] = {}
    stored = list(_stored(reach.files, sizes, kinds))
    done.files_seen = len(stored)
    roots = reach.read()
    old_ms = reach.read_ms - 1000 * policy.grace_seconds
    ranges = {info.id for state in reach.states.values() for info in state.ranges}
    sweep = plan_sweep(
        stored,
        map(_condemned, CondemnedFile.objects.filter(repository_id=repository.pk)),
        reach.states.keys() | ranges,
        [begun / 1000 for begun in roots.builds_begun_ms],
        written_before=old_ms / 1000,
        condemned_before=old_ms / 1000,
        clock_skew_s=CLOCK_SKEW_MAX_S,
    )
    done.files_condemned, done.files_spared = len(sweep.condemned), len(sweep.spared)
    done.name(sweep.deleted)
    objects_old_ms = reach.read_ms - 1000 * policy.object_grace_seconds
    objects = ObjectSweep(repository, reach, old_ms=objects_old_ms, done=done) if has_objects else None
    if context.is_dry_run:
        done.files_deleted = len(sweep.deleted)
        done.bytes_deleted = sum(sizes.get(id_, 0) for id_ in sweep.deleted)
        if objects:
            objects.preview()
        done.rows_deleted = sweep_tokens(repository, before_ms=old_ms, is_dry_run=True)
        return
    _list_files(repository, sweep, kinds)
    if objects:
        objects.condemn()
    # Deletion begins here: the code above only changes lists.
    allow_deletions(mark=True)  # commits of catalogs are not commands of the log
    _delete_files(repository, reach.files, sweep, sizes, done)
    _delete_runs(repository, done, before_ms=old_ms)
    if objects:
        objects.delete()
    done.rows_deleted = sweep_tokens(repository, before_ms=old_ms)


def _are_objects_due(repository: Repository) -> bool:
    last = Collection.objects.filter(repository=repository, has_objects=True, error="").first()
    return last is None or last.begun_ms <= clock_ms() - OBJECTS_EVERY_MS


def _stored(files: CatalogFiles, sizes: dict[str, int], kinds: dict[str, bytes]) -> Iterable[StoredFile]:
    for kind, folder in FOLDERS.items():
        for info in files.store.list(f"{files.prefix}{folder}/"):
            id_ = info.key.rpartition("/")[2]
            sizes[id_], kinds[id_] = info.size, kind
            yield StoredFile(id_, info.modified_at)


def _condemned(row: CondemnedFile) -> Condemned:
    deleted_at = None if row.deleted_ms is None else row.deleted_ms / 1000
    return Condemned(id=row.file_id, since=row.since_ms / 1000, is_marked=row.is_marked, deleted_at=deleted_at)


def _list_files(repository: Repository, sweep: FileSweep, kinds: dict[str, bytes]) -> None:
    """Condemn unreachable files, and remove files that are reachable again from the list."""
    own = CondemnedFile.objects.filter(repository_id=repository.pk)
    own.filter(file_id__in=sweep.forgotten).delete()
    own.filter(file_id__in=sweep.spared, is_marked=False).delete()
    now_ms = clock_ms()
    CondemnedFile.objects.bulk_create(
        (
            CondemnedFile(
                repository_id=repository.pk,
                file_id=id_,
                is_metarange=kinds[id_] == Kind.METARANGE,
                since_ms=now_ms,
            )
            for id_ in sweep.condemned
        ),
        ignore_conflicts=True,
        batch_size=1000,
    )


def _delete_files(
    repository: Repository, files: CatalogFiles, sweep: FileSweep, sizes: dict[str, int], done: Collected
) -> None:
    own = CondemnedFile.objects.filter(repository_id=repository.pk)
    for start in range(0, len(sweep.deleted), FILES_AT_ONCE):
        if start:
            allow_deletions()
        some = sweep.deleted[start : start + FILES_AT_ONCE]
        # A build that was published since then has removed its files from the list; they are not marked.
        own.filter(file_id__in=some).update(is_marked=True)
        gone = [row for row in own.filter(file_id__in=some, is_marked=True) if _is_deleted(files, row, done)]
        own.filter(pk__in=[row.pk for row in gone]).update(deleted_ms=clock_ms())
        done.files_deleted += len(gone)
        done.bytes_deleted += sum(sizes.get(row.file_id, 0) for row in gone)


def _is_deleted(files: CatalogFiles, row: CondemnedFile, done: Collected) -> bool:
    try:
        files.store.delete(files.key(Kind.METARANGE if row.is_metarange else Kind.RANGE, row.file_id))
    except StorageError as error:
        done.failed += 1
        log.warning("file_not_deleted file=%s error=%s", row.file_id, error)
        return False
    return True


def _delete_runs(repository: Repository, done: Collected, *, before_ms: int) -> None:
    """Delete runs of compactions that ended before then. A database that goes back in time opens later ones again."""
    over = Compaction.objects.filter(repository=repository, finished_ms__lt=before_ms).exclude(run_key="")
    for pk, key in list(over.values_list("pk", "run_key")):
        try:
            catalog_store().delete(key)
        except StorageError as error:
            done.failed += 1
            log.warning("run_not_deleted key=%s error=%s", key, error)
            continue
        Compaction.objects.filter(pk=pk).update(run_key="")


def _keep(
    repository: Repository, done: Collected, begun_ms: int, has_objects: bool, context: ActionContext, error: str
) -> None:
    Collection.objects.create(
        repository=repository,
        actor=context.actor[:ACTOR_MAX],
        begun_ms=begun_ms,
        finished_ms=clock_ms(),
        has_objects=has_objects,
        error=error[:REASON_MAX],
        **done.to_json(),
    )
    last = Collection.objects.filter(repository=repository).values_list("pk", flat=True)[COLLECTIONS_KEPT:]
    Collection.objects.filter(pk__in=list(last)).delete()
    if context.actor != ACTOR:
        detail = done.to_json() | {"why": context.why, "error": error}
        record_audit(actor=context.actor, action="catalog_collect", target=str(repository), detail=detail)
