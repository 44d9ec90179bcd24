"""Deletes what nothing reaches: files of lost builds and replaced snapshots, objects, rows of retired tokens, runs of
compactions that are over.

The store is listed first and the rows are read after it, of one moment. A file is condemned, and deleted when its time
of grace is over and nothing reaches it still (``engine.planning.staging.orphans``); an object is deleted when it is
older than anything that could still be linked. Whatever cannot be read ends the collection: nothing is deleted then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np

from engine.catalog.files import FOLDERS, CatalogFiles
from engine.catalog.layout import Kind
from engine.errors import LithifyError
from engine.planning.staging.orphans import CondemnedFile as Condemned
from engine.planning.staging.orphans import FileSweep, StoredFile, plan_sweep
from engine.storage import ObjectInfo, StorageError
from webadmin.access.services import record_audit
from webadmin.catalog.compaction_policies import policy_of
from webadmin.catalog.lane_models import ACTOR_MAX, REASON_MAX, Collection, Compaction
from webadmin.catalog.models import CondemnedFile, Repository
from webadmin.catalog.places import catalog_store, data_prefix_of, files_of, folder_of
from webadmin.catalog.reachable import addresses_in, reached_states, read_roots
from webadmin.catalog.services.end_compactions import ACTOR
from webadmin.catalog.services.sweep_rows import sweep_builds, sweep_repository, sweep_tokens
from webadmin.catalog.states import CompactionState, RepositoryState
from webadmin.database.dialect import clock_ms
from webadmin.schedule.services.operation import Order

log = logging.getLogger(__name__)

CLOCKS_APART_S = 900.0
"""The store tells when a file was put by its own clock."""
FILES_AT_ONCE = 500
OBJECTS_EVERY_MS = 24 * 3_600_000
COLLECTIONS_KEPT = 100
NAMES_SHOWN = 50


@dataclass(slots=True)
class Collected:
    """What a collection did, or would do: counts, and the first names of what goes."""

    files_seen: int = 0
    files_condemned: int = 0
    files_spared: int = 0
    files_deleted: int = 0
    objects_seen: int = 0
    objects_deleted: int = 0
    bytes_deleted: int = 0
    rows_deleted: int = 0
    failed: int = 0
    names: list[str] = field(default_factory=list)

    def name(self, names: Iterable[str]) -> None:
        """Keep names while there is room."""
        self.names += islice(names, max(0, NAMES_SHOWN - len(self.names)))

    def to_json(self) -> dict[str, Any]:
        """Return the counts."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "names"}


@dataclass(slots=True)
class CollectReport:
    """Repositories that were looked at, what was deleted in them, and those that could not be, with the error."""

    repositories: int = 0
    deleted: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def collect_all() -> CollectReport:
    """Collect in every repository; one in trouble stops none."""
    report = CollectReport()
    sweep_builds()
    for repository in Repository.objects.order_by("pk"):
        report.repositories += 1
        try:
            if repository.state == RepositoryState.DELETING:
                report.deleted += sweep_repository(repository)
                continue
            done = collect_garbage(repository, has_objects=_are_objects_due(repository))
        except LithifyError as error:
            report.failed[str(repository)] = str(error)
            log.warning("catalog_not_collected repository=%s error=%s", repository, error)
            continue
        report.deleted += done.files_deleted + done.objects_deleted + done.rows_deleted
    return report


def collect_garbage(repository: Repository, *, has_objects: bool = True, order: Order | None = None) -> Collected:
    """Collect in a repository. A dry run says what would be condemned and deleted now.

    Raises StorageError, BadObject.
    """
    order = order or Order(actor=ACTOR, why="time has come")
    begun_ms = clock_ms()
    done = Collected()
    try:
        _collect(repository, done, has_objects, order)
    except LithifyError as error:
        if not order.is_dry_run:
            _keep(repository, done, begun_ms, has_objects, order, str(error))
        raise
    if not order.is_dry_run:
        _keep(repository, done, begun_ms, has_objects, order, "")
    return done


def _collect(repository: Repository, done: Collected, has_objects: bool, order: Order) -> None:
    policy, now_ms = policy_of(repository), clock_ms()
    grace_ms = 1000 * policy.grace_seconds
    files = files_of(repository)
    sizes: dict[str, int] = {}
    kinds: dict[str, bytes] = {}
    stored = list(_stored(files, sizes, kinds))
    done.files_seen = len(stored)
    roots = read_roots(repository, now_ms=now_ms, retention_days=policy.retention_days, has_objects=has_objects)
    states = reached_states(files, roots)
    ranges = {info.id for state in states.values() for info in state.ranges}
    sweep = plan_sweep(
        stored,
        map(_condemned, CondemnedFile.objects.filter(repository_id=repository.pk)),
        states.keys() | ranges,
        [begun / 1000 for begun in roots.builds_begun_ms],
        written_before=(now_ms - grace_ms) / 1000,
        condemned_before=(now_ms - grace_ms) / 1000,
        clocks_apart=CLOCKS_APART_S,
    )
    done.files_condemned, done.files_spared = len(sweep.condemned), len(sweep.spared)
    done.name(sweep.deleted)
    if order.is_dry_run:
        done.files_deleted = len(sweep.deleted)
        done.bytes_deleted = sum(sizes.get(id_, 0) for id_ in sweep.deleted)
    else:
        _sweep_files(repository, files, sweep, sizes, kinds, done)
        _delete_runs(repository, done)
    if has_objects:
        kept = (info for id_ in sorted(roots.keeping_objects) for info in states[id_].ranges)
        reached = chain(roots.staged, addresses_in(files, kept))
        old_ms = now_ms - 1000 * policy.object_grace_seconds
        _delete_objects(_unreached(repository, reached, old_ms, done), done, is_dry_run=order.is_dry_run)
    done.rows_deleted = sweep_tokens(repository, before_ms=now_ms - grace_ms, is_dry_run=order.is_dry_run)


def _are_objects_due(repository: Repository) -> bool:
    last = Collection.objects.filter(repository=repository, has_objects=True, error="").first()
    return last is None or last.begun_ms <= clock_ms() - OBJECTS_EVERY_MS


def _stored(files: CatalogFiles, sizes: dict[str, int], kinds: dict[str, bytes]) -> Iterable[StoredFile]:
    for kind, folder in FOLDERS.items():
        for info in files.store.list(f"{files.prefix}{folder}/"):
            id_ = info.key.rpartition("/")[2]
            sizes[id_], kinds[id_] = info.size, kind
            yield StoredFile(id_, info.modified_at)


def _unreached(repository: Repository, reached: Iterable[str], old_ms: int, done: Collected) -> Iterator[ObjectInfo]:
    """Yield the objects older than this that no address names. Addresses are held as hashes: of two with the same one
    an object may stay that could go.
    """
    hashes = np.unique(np.fromiter(map(hash, reached), np.int64))
    folder = folder_of(repository)
    for info in catalog_store().list(data_prefix_of(repository)):
        done.objects_seen += 1
        if info.modified_at * 1000 < old_ms and not _is_among(hash(info.key.removeprefix(folder)), hashes):
            yield info


def _is_among(value: int, ascending: np.ndarray) -> bool:
    at = int(np.searchsorted(ascending, value))
    return at < len(ascending) and int(ascending[at]) == value


def _condemned(row: CondemnedFile) -> Condemned:
    deleted_at = None if row.deleted_ms is None else row.deleted_ms / 1000
    return Condemned(id=row.file_id, since=row.since_ms / 1000, is_marked=row.is_marked, deleted_at=deleted_at)


def _sweep_files(
    repository: Repository,
    files: CatalogFiles,
    sweep: FileSweep,
    sizes: dict[str, int],
    kinds: dict[str, bytes],
    done: Collected,
) -> None:
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
    for start in range(0, len(sweep.deleted), FILES_AT_ONCE):
        some = sweep.deleted[start : start + FILES_AT_ONCE]
        # A build that was published since then has taken its files off the list: they stay.
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


def _delete_objects(unreached: Iterable[ObjectInfo], done: Collected, *, is_dry_run: bool) -> None:
    store = catalog_store()
    for info in unreached:
        try:
            if not is_dry_run:
                store.delete(info.key)
        except StorageError as error:
            done.failed += 1
            log.warning("object_not_deleted key=%s error=%s", info.key, error)
            continue
        done.name([info.key])
        done.objects_deleted += 1
        done.bytes_deleted += info.size


def _delete_runs(repository: Repository, done: Collected) -> None:
    """Delete the runs of compactions that are over."""
    over = Compaction.objects.filter(repository=repository).exclude(run_key="").exclude(state=CompactionState.OPEN)
    for pk, key in list(over.values_list("pk", "run_key")):
        try:
            catalog_store().delete(key)
        except StorageError as error:
            done.failed += 1
            log.warning("run_not_deleted key=%s error=%s", key, error)
            continue
        Compaction.objects.filter(pk=pk).update(run_key="")


def _keep(repository: Repository, done: Collected, begun_ms: int, has_objects: bool, order: Order, error: str) -> None:
    Collection.objects.create(
        repository=repository,
        actor=order.actor[:ACTOR_MAX],
        begun_ms=begun_ms,
        finished_ms=clock_ms(),
        has_objects=has_objects,
        error=error[:REASON_MAX],
        **done.to_json(),
    )
    last = Collection.objects.filter(repository=repository).values_list("pk", flat=True)[COLLECTIONS_KEPT:]
    Collection.objects.filter(pk__in=list(last)).delete()
    if order.actor != ACTOR:
        detail = done.to_json() | {"why": order.why, "error": error}
        record_audit(actor=order.actor, action="catalog_collect", target=str(repository), detail=detail)
