"""Unreachable objects of entries: one round of garbage collection condemns them, a later one deletes them.

A round condemns an old object that is not reachable: it inserts a row. A later round, at least an hour later, deletes
the object if it is still unreachable from roots that were read again; it marks the row first, and deletes it with the
object.

Between the reading of the roots and the mark an object may become reachable again. An operation that names a single
object (a copy) calls ``withdraw`` before the row is staged. An operation that sets a branch, a tag or a head to a whole
state, which may be that of a commit whose objects are not kept, calls ``count_link`` in its transaction: objects are
marked only if the count is unchanged since before the roots were read; otherwise the roots are read again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from django.db import transaction
from django.db.models import F

from engine.lanes.catalog.plan.orphans import CondemnedFile as Condemned
from engine.lanes.catalog.plan.orphans import FileSweep, StoredFile, plan_sweep
from engine.storage import ObjectInfo, StorageError
from webadmin.base.database.dialect import clock_ms, locked
from webadmin.lanes.catalog.models import CondemnedObject, Repository
from webadmin.lanes.catalog.places import catalog_store, data_prefix_of, folder_of
from webadmin.lanes.catalog.reachable import Reach
from webadmin.lanes.catalog.services.garbage.garbage_counts import Collected
from webadmin.schedule.services.guard_deletions import allow_deletions

log = logging.getLogger(__name__)

CONDEMNED_MS = 3_600_000
"""Minimum time between condemning an object and deleting it, in milliseconds."""
OBJECTS_AT_ONCE = 500
READS_MAX = 5
"""Maximum number of readings of the roots in one round because of concurrent links; the rest is left to the next round.
"""


def withdraw(repository: Repository, address: str) -> bool:
    """Remove an object from the list; return False if its deletion has begun. Call before the object is named again.

    If it is condemned again, it is deleted an hour later at the earliest, and the roots read then include the new name.
    """
    own = CondemnedObject.objects.filter(repository_id=repository.pk, address=address)
    own.filter(is_marked=False).delete()
    return not own.filter(is_marked=True).exists()


def count_link(repository_id: int) -> None:
    """Count that a branch, tag or head was set to a state. Call it in the transaction that does so."""
    Repository.objects.filter(pk=repository_id).update(links=F("links") + 1)


class ObjectSweep:
    """The objects of a repository to condemn and delete in a round.

    The plan is made on creation; ``reach`` must have been read before.
    """

    def __init__(self, repository: Repository, reach: Reach, *, old_ms: int, done: Collected) -> None:
        self._repository, self._reach, self._done = repository, reach, done
        self._own = CondemnedObject.objects.filter(repository_id=repository.pk)
        self._before_ms = reach.read_ms - CONDEMNED_MS
        self._sizes: dict[str, int] = {}
        self.plan: FileSweep = plan_sweep(
            self._unreached(),
            map(_condemned, self._own.iterator()),
            reach,
            written_before=old_ms / 1000,
            condemned_before=self._before_ms / 1000,
        )
        done.objects_condemned, done.objects_spared = len(self.plan.condemned), len(self.plan.spared)

    def preview(self) -> None:
        """Count the objects that would be deleted now."""
        self._count(self.plan.deleted)

    def condemn(self) -> None:
        """Condemn unreachable objects, and remove objects that are reachable again from the list."""
        for some in _batches(self.plan.spared):
            self._own.filter(address__in=some, is_marked=False).delete()
        now_ms = clock_ms()
        for some in _batches(self.plan.condemned):
            CondemnedObject.objects.bulk_create(
                (CondemnedObject(repository_id=self._repository.pk, address=each, since_ms=now_ms) for each in some),
                ignore_conflicts=True,
            )

    def delete(self) -> None:
        """Delete objects whose time on the list is over, unless they are linked concurrently."""
        left, reads = list(self.plan.deleted), 0
        while left:
            some = left[:OBJECTS_AT_ONCE]
            marked = self._mark(some)
            if marked is None:
                reads += 1
                if reads > READS_MAX:
                    log.info("objects_left repository=%s count=%d", self._repository, len(left))
                    return
                self._reach.read()
                left = [address for address in left if address not in self._reach]
                continue
            left = left[OBJECTS_AT_ONCE:]
            allow_deletions()
            self._delete(marked)

    def _mark(self, some: list[str]) -> Mapping[int, str] | None:
        """Mark those that are still on the list and return them by row id.

        None if something was linked since the roots were read.
        """
        with transaction.atomic():
            unchanged = Repository.objects.filter(pk=self._repository.pk, links=self._reach.links)
            if not list(locked(unchanged).values_list("pk")):
                return None
            self._own.filter(address__in=some, since_ms__lt=self._before_ms).update(is_marked=True)
        return dict(self._own.filter(address__in=some, is_marked=True).values_list("pk", "address"))

    def _delete(self, marked: Mapping[int, str]) -> None:
        store, folder, gone = catalog_store(), folder_of(self._repository), []
        for pk, address in marked.items():
            try:
                store.delete(folder + address)
            except StorageError as error:
                self._done.failed += 1
                log.warning("object_not_deleted key=%s error=%s", folder + address, error)
                continue
            gone.append(pk)
        self._own.filter(pk__in=gone).delete()
        self._count([marked[pk] for pk in gone])

    def _count(self, addresses: Sequence[str]) -> None:
        folder = folder_of(self._repository)
        self._done.name(folder + address for address in addresses)
        self._done.objects_deleted += len(addresses)
        self._done.bytes_deleted += sum(self._sizes.get(address, 0) for address in addresses)

    def _unreached(self) -> Iterator[StoredFile]:
        folder = folder_of(self._repository)
        for info in catalog_store().list(data_prefix_of(self._repository)):
            self._done.objects_seen += 1
            address = info.key.removeprefix(folder)
            if address not in self._reach:
                self._sizes[address] = info.size
                yield _stored(address, info)


def _stored(address: str, info: ObjectInfo) -> StoredFile:
    return StoredFile(address, info.modified_at)


def _condemned(row: CondemnedObject) -> Condemned:
    return Condemned(id=row.address, since=row.since_ms / 1000, is_marked=row.is_marked)


def _batches(addresses: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(addresses), OBJECTS_AT_ONCE):
        yield addresses[start : start + OBJECTS_AT_ONCE]
