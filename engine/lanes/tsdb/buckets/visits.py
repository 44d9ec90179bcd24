"""Visit markers of other compactors: whoever works on a tenant's blocks says so every minute.

A marker is fresh until ``timeout_s`` after the visit it tells. Two compactors must not work on the same blocks, so a
fresh marker of another one is a reason to plan nothing for the tenant.
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
"""After this long without a visit the other systems give the work to somebody else."""
CLOCKS_APART_S = 600.0
"""How far the store's clock and a compactor's may differ before a marker is overlooked."""
REQUESTS_AT_ONCE = 16

_PARTITION_MARK = re.compile(r"[0-9]{1,20}/partition-[0-9]{1,20}-visit-mark\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignVisit:
    """A fresh marker of another compactor. Times are unix seconds; ``until_s`` is when it expires if nobody comes back.

    ``compactor`` is "" and ``fault`` says why if the marker cannot be read; then its age is that of the object.
    ``status`` is told of partitions only: pending, inProgress, completed or failed, any of which shows somebody alive.
    """

    key: str
    compactor: str
    visited_at_s: float
    until_s: float
    status: str = ""
    fault: str = ""

    def __str__(self) -> str:
        return f"{self.compactor or 'a marker that cannot be read'} visited {self.key}"


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
    """Return who else works on these blocks, or on any partition of their tenant, in order of their keys.

    ``own`` are names under which markers do not count. Costs one request per block, one listing, and one request per
    recent marker of a partition; nothing where the layout knows no visits (Thanos).
    """
    if not layout.has_visits:
        return ()
    keys = [block_key(folder, ulid, VISIT_MARK) for ulid in sorted(ulids)]
    keys += _recent_partition_marks(store, folder, now_s - timeout_s - CLOCKS_APART_S)

    def look(key: str) -> ForeignVisit | None:
        return _visit(store, key, now_s, timeout_s)

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        visits = [visit for visit in pool.map(look, keys) if visit]
    fresh = (visit for visit in visits if visit.until_s > now_s and visit.compactor not in own)
    return tuple(sorted(fresh, key=lambda visit: visit.key))


def _recent_partition_marks(store: ObjectStore, folder: str, since_s: float) -> Iterator[str]:
    """Yield the markers of partitions written since then: the others have expired whatever they say."""
    prefix = f"{folder}partitioned-groups/visit-marks/"
    for info in store.list(prefix):
        if info.modified_at > since_s and _PARTITION_MARK.fullmatch(info.key.removeprefix(prefix)):
            yield info.key


def _visit(store: ObjectStore, key: str, now_s: float, timeout_s: float) -> ForeignVisit | None:
    def read(fields: Fields) -> ForeignVisit:
        visited = fields.integer("visitTime", 0, TIME_MAX)
        if visited > now_s + CLOCKS_APART_S:
            raise fields.error("visitTime", "the visit is yet to come")
        return ForeignVisit(
            key=key,
            compactor=fields.text("compactorID", TEXT_MAX, empty=False),
            visited_at_s=visited,
            until_s=visited + timeout_s,
            status=fields.text("status", TEXT_MAX, default=""),
        )

    with suppress(ObjectNotFound):  # The visit ended while it was looked at.
        data = store.get(key)
        try:
            return read_json(data, VISIT_MARK, VISIT_BYTES_MAX, read)
        except BadObject as error:
            written = store.head(key).modified_at
            return ForeignVisit(
                key=key, compactor="", visited_at_s=written, until_s=written + timeout_s, fault=str(error)
            )
    return None
