"""Visit markers of other compactors, which they renew every minute while they work on a tenant's blocks.

A marker is fresh until ``timeout_s`` after its visit time. Two compactors must not work on the same blocks, so the
tenant of a fresh foreign marker is not planned.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from engine.core.errors import BadObject
from engine.lanes.tsdb.buckets.json_objects import TEXT_MAX, TIME_MAX, read_json
from engine.lanes.tsdb.buckets.layout import Layout, block_key
from engine.protocol.fields import Fields
from engine.storage import ObjectNotFound, ObjectStore

VISIT_MARK = "visit-mark.json"
VISIT_BYTES_MAX = 64 << 10
VISIT_TIMEOUT_S = 600.0
"""Time without a visit after which other systems reassign the work."""
CLOCK_SKEW_MAX_S = 600.0
"""Clock difference between store and compactor up to which markers are still found."""
REQUESTS_AT_ONCE = 16

_PARTITION_MARK = re.compile(r"[0-9]{1,20}/partition-[0-9]{1,20}-visit-mark\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignVisit:
    """A fresh marker of another compactor. Times are in Unix seconds; ``until_s`` is its expiry time.

    If the marker cannot be read, ``compactor`` is "", ``fault`` is the error, and its age is that of the object. Only
    markers of partitions have a ``status``: pending, inProgress, completed or failed; each shows an active compactor.
    """

    key: str
    compactor: str
    visited_at_s: float
    until_s: float
    status: str = ""
    fault: str = ""

    def __str__(self) -> str:
        return f"{self.compactor or 'an unreadable marker'} visited {self.key}"


def fresh_foreign_markers(
    store: ObjectStore,
    layout: Layout,
    folder: str,
    ulids: Collection[str],
    *,
    now_s: float,
    own: Collection[str] = (),
    timeout_s: float = VISIT_TIMEOUT_S,
) -> tuple[ForeignVisit, ...]:
    """Return the fresh foreign markers on these blocks, or on any partition of their tenant, ordered by key.

    ``own`` are compactor names whose markers are ignored. Costs one request per block, one listing, and one request per
    recent partition marker; none for layouts without visit markers (Thanos).
    """
    if not layout.has_visits:
        return ()
    keys = [block_key(folder, ulid, VISIT_MARK) for ulid in sorted(ulids)]
    keys += _recent_partition_marks(store, folder, now_s - timeout_s - CLOCK_SKEW_MAX_S)

    def read_marker(key: str) -> ForeignVisit | None:
        return _visit(store, key, now_s, timeout_s)

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        visits = [visit for visit in pool.map(read_marker, keys) if visit]
    fresh = (visit for visit in visits if visit.until_s > now_s and visit.compactor not in own)
    return tuple(sorted(fresh, key=lambda visit: visit.key))


def _recent_partition_marks(store: ObjectStore, folder: str, since_s: float) -> Iterator[str]:
    """Yield the keys of partition markers written since then; older ones have expired."""
    prefix = f"{folder}partitioned-groups/visit-marks/"
    for info in store.list(prefix):
        if info.modified_at > since_s and _PARTITION_MARK.fullmatch(info.key.removeprefix(prefix)):
            yield info.key


def _visit(store: ObjectStore, key: str, now_s: float, timeout_s: float) -> ForeignVisit | None:
    def read(fields: Fields) -> ForeignVisit:
        visited = fields.integer("visitTime", 0, TIME_MAX)
        if visited > now_s + CLOCK_SKEW_MAX_S:
            raise fields.error("visitTime", "the visit is in the future")
        return ForeignVisit(
            key=key,
            compactor=fields.text("compactorID", TEXT_MAX, empty=False),
            visited_at_s=visited,
            until_s=visited + timeout_s,
            status=fields.text("status", TEXT_MAX, default=""),
        )

    with suppress(ObjectNotFound):  # The marker was deleted meanwhile.
        data = store.get(key)
        try:
            return read_json(data, VISIT_MARK, VISIT_BYTES_MAX, read)
        except BadObject as error:
            modified_at_s = store.head(key).modified_at
            return ForeignVisit(
                key=key, compactor="", visited_at_s=modified_at_s, until_s=modified_at_s + timeout_s, fault=str(error)
            )
    return None
