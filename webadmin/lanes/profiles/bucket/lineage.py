"""Decide which blocks of a bucket count, so that exactly one side of every merge does: its sources or its results.

A merge leaves its sources in the bucket until their deletion is due, and a merge that lost its lease leaves uncommitted
results. The records (``lineage_objects``) name committed merges; a block they name is *accepted*. The rules:

1. Sources in a record are left out. If a result of the record is lost and all sources exist, the results are left out.
2. Segments count, and so does an accepted block.
3. Any other block is the result of a merge that was never committed, or not recorded yet, if its first source is in
the bucket or in a record; it is left out. The source is found by time: a result has the time of its job's first source
in its id.
4. Everything else is foreign and counts.

Rule 3 is safe for blocks that this platform wrote: until a record exists, all sources do. A foreign block could
coincide with another one of the same millisecond, shard and tenant, one level below; it would be left out, and the
caller reports it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.core import ulids
from engine.core.errors import BadBlockName, BadObject, LithifyError
from engine.formats.profile_block.container.object_names import parse_block_key
from engine.formats.profile_block.model import BlockMeta
from engine.storage.model import ObjectStore, StorageError
from webadmin.lanes.profiles.bucket.lineage_objects import (
    LEVEL_UNKNOWN,
    LINEAGE,
    BlockName,
    LineageRecord,
    read_records,
)
from webadmin.lanes.profiles.bucket.scan import describe_block, find_blocks

REPLACED = "replaced by the results of a merge, or removed"
USELESS = "another result of its merge is lost; the sources count"
RIVAL = "another run of its merge is recorded, or one of its sources was merged elsewhere"
UNCOMMITTED = "its first source is still there and no swap is recorded"


class _Neighbour(NamedTuple):
    """Another block with the same time in its id."""

    name: BlockName
    tenant: str
    level: int


@dataclass(slots=True)
class BucketLineage:
    """The records and object names of a bucket.

    ``bad`` are records that cannot be read, or that show lost data; ``superseded`` are the replaced blocks whose
    results all exist, or that were removed; ``rivals`` are results that only ignored records name.
    """

    store: ObjectStore
    replaced: set[BlockName] = field(default_factory=set)
    accepted: set[BlockName] = field(default_factory=set)
    useless: set[BlockName] = field(default_factory=set)
    rivals: set[BlockName] = field(default_factory=set)
    superseded: set[BlockName] = field(default_factory=set)
    largest_index: int = 0
    holds_results: bool = False
    bad: list[tuple[str, LithifyError]] = field(default_factory=list)
    _of_time: dict[int, list[str]] = field(default_factory=dict)
    _records_of_time: defaultdict[int, list[LineageRecord]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def read(
        cls,
        store: ObjectStore,
        select: Callable[[Sequence[tuple[str, LineageRecord]]], Sequence[tuple[str, LineageRecord]]] = list,
    ) -> BucketLineage:
        """List the bucket once and read its records; records not returned by ``select`` are ignored."""
        lineage = cls(store)
        names, elsewhere = lineage._read_names()
        records: list[tuple[str, LineageRecord]] = []
        for key, record in read_records(store):
            if isinstance(record, LineageRecord):
                records.append((key, record))
            else:
                lineage.bad.append((key, record))
        # Includes ignored records: no index is used twice.
        lineage.largest_index = max((record.command_index for _, record in records), default=0)
        lineage.rivals = {result for _, record in records for result in record.results}
        records = list(select(records))
        merged_further = {source for _, record in records for source in record.sources}
        for key, record in records:
            lineage._note(key, record, names, elsewhere, merged_further)
        lineage.rivals -= lineage.accepted
        return lineage

    def why_key_is_left_out(self, key: str) -> str:
        """Return why an object of our own layout does not count, judged by its name; "" if it may count."""
        name = name_of(key)
        return self._why_named(name) if name else ""

    def why_left_out(self, meta: BlockMeta) -> str:
        """Return why the block with this metadata does not count, "" if it does."""
        name = (meta.shard, meta.id)
        if reason := self._why_named(name):
            return reason
        if meta.compaction_level == 0 or name in self.accepted:
            return ""
        if self._has_recorded_source(meta):
            return RIVAL
        return UNCOMMITTED if self._has_source(meta) else ""

    def _why_named(self, name: BlockName) -> str:
        if name in self.replaced:
            return REPLACED
        if name in self.useless:
            return USELESS
        return RIVAL if name in self.rivals else ""

    def _read_names(self) -> tuple[set[BlockName], set[str]]:
        """Return the names of the objects of our layout, and the ids in the paths of others."""
        names: set[BlockName] = set()
        elsewhere: set[str] = set()
        of_time: defaultdict[int, list[str]] = defaultdict(list)
        for path_id, info in find_blocks(self.store):
            name = name_of(info.key)
            of_time[ulids.time_ms(path_id)].append(info.key)
            if name is None:
                elsewhere.add(path_id)
            else:
                names.add(name)
                self.holds_results |= not parse_block_key(info.key).is_segment
        self._of_time = {time_ms: keys for time_ms, keys in of_time.items() if len(keys) > 1}
        return names, elsewhere

    def _note(
        self,
        key: str,
        record: LineageRecord,
        names: set[BlockName],
        elsewhere: set[str],
        merged_further: set[BlockName],
    ) -> None:
        self.accepted.update(record.sources, record.results)
        for time_ms in {ulids.time_ms(block_id) for _, block_id in record.sources}:
            self._records_of_time[time_ms].append(record)
        lost = [name for name in record.results if name not in names and name not in merged_further]
        if not record.sources or not lost:
            self.replaced.update(record.sources)
            self.superseded.update(record.sources)
            return
        is_first = merged_further.isdisjoint(record.results)
        if is_first and all(name in names or name[1] in elsewhere for name in record.sources):
            self.useless.update(record.results)  # all sources still exist
            return
        self.replaced.update(record.sources)
        ids = ", ".join(block_id for _, block_id in lost[:3])
        reason = f"{len(lost)} results are not in the bucket and not all sources are: the data of {ids} is lost"
        self.bad.append((key, BadObject(LINEAGE, -1, reason, key)))

    def _has_recorded_source(self, meta: BlockMeta) -> bool:
        """Return whether a record has a possible first source of the block: same shard and time, level not above."""
        for record in self._records_of_time.get(ulids.time_ms(meta.id), ()):
            is_below = record.level == LEVEL_UNKNOWN or meta.compaction_level - record.level in (0, 1)
            if is_below and meta.shard in record.shards:
                return True
        return False

    def _has_source(self, meta: BlockMeta) -> bool:
        """Return whether the block's first source, or an accepted block that it was to replace, is in the bucket."""
        for key in self._of_time.get(ulids.time_ms(meta.id), ()):
            other = self._at(key)
            if other is None or other.name == (meta.shard, meta.id):
                continue
            is_of_tenant = other.level == 0 or other.tenant == meta.tenant
            # Segments are merged within their shard; blocks above level 0 may be merged across the shards of a tenant.
            is_near = other.name[0] == meta.shard or other.level > 0
            is_rewritten = other.level == meta.compaction_level and self._counts(other.name)
            if is_of_tenant and is_near and (is_rewritten or other.level == meta.compaction_level - 1):
                return True
        return False

    def _counts(self, name: BlockName) -> bool:
        return name in self.accepted and name not in self.replaced and name not in self.useless

    def _at(self, key: str) -> _Neighbour | None:
        """Return the description of an object; a segment of our layout is not read, since it may have no footer."""
        try:
            named = parse_block_key(key)
            if named.is_segment:
                return _Neighbour((named.shard, named.id), "", 0)
        except BadBlockName:
            pass
        try:
            found = describe_block(self.store, key.split("/")[-2], self.store.head(key), {})
        except StorageError:
            return None
        if found.registration is None:
            return None
        meta = found.registration.meta
        return _Neighbour((meta.shard, meta.id), meta.tenant, meta.compaction_level)


def name_of(key: str) -> BlockName | None:
    """Return the name in a key of our own layout, None for other keys."""
    try:
        named = parse_block_key(key)
    except BadBlockName:
        return None
    return named.shard, named.id
