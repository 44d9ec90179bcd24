"""Builds the index again from the bucket alone, into an empty index or one that lacks some; run it again to resume.

A merge leaves its sources in the bucket for a while, so objects alone would count data twice. Three rules decide:

1. A lineage record says that its sources are replaced. They are left out, unless a result of theirs is lost.
2. A block without a record whose first source is still there is left out: its swap was never committed, or nothing of
   its sources has been deleted since. A result's id carries the time of its first source, so the two are found.
3. Everything else is taken in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from engine.errors import LithifyError
from engine.profiles import ulids
from engine.profiles.errors import BadBlockName
from engine.profiles.object_names import parse_block_key
from engine.storage.model import ObjectInfo, ObjectStore
from webadmin.index.bucket_scan import FoundBlock, describe_block, find_blocks
from webadmin.index.lineage_objects import LineageRecord, read_records
from webadmin.index.models import Block
from webadmin.index.services.add_blocks import add_blocks
from webadmin.schedule.models import Command

BLOCKS_PER_COMMAND = 100

BlockName = tuple[int, str]
"""Shard and id."""


@dataclass(slots=True, kw_only=True)
class RebuildOutcome:
    """What a rebuild found so far. ``left_out`` maps keys to the reason, ``bad`` are objects that cannot be read."""

    found: int = 0
    added: int = 0
    known: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    conflicting: list[str] = field(default_factory=list)
    bad: list[tuple[str, LithifyError]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Lineage:
    """What the records say: replaced blocks, blocks whose swap is recorded, results to leave out as others are lost."""

    replaced: set[BlockName] = field(default_factory=set)
    recorded: set[BlockName] = field(default_factory=set)
    useless: set[BlockName] = field(default_factory=set)


def rebuild_index(
    *, store: ObjectStore, actor: str, progress: Callable[[RebuildOutcome], None] = lambda outcome: None
) -> RebuildOutcome:
    """Register every block of the bucket that is not replaced by another. ``progress`` is called after every batch."""
    outcome = RebuildOutcome()
    names = {name for _, info in find_blocks(store) if (name := _name(info.key))}
    lineage = _read_lineage(store, names, outcome)
    first_sources = _times(names - lineage.replaced)
    objects = find_blocks(store)
    while part := list(islice(objects, BLOCKS_PER_COMMAND)):
        outcome.found += len(part)
        batch = list(_wanted(store, part, lineage, first_sources, outcome))
        _register(batch, outcome, actor)
        progress(outcome)
    return outcome


def _read_lineage(store: ObjectStore, names: set[BlockName], outcome: RebuildOutcome) -> _Lineage:
    records: list[LineageRecord] = []
    for key, record in read_records(store):
        if isinstance(record, LineageRecord):
            records.append(record)
        else:
            outcome.bad.append((key, record))
    merged_further = {(record.shard, source) for record in records for source in record.sources}
    lineage = _Lineage()
    for record in records:
        sources = {(record.shard, source) for source in record.sources}
        results = {(record.shard, result) for result in record.results}
        lineage.recorded |= results
        if results - names - merged_further and sources <= names:
            lineage.useless |= results  # one of them is lost, and the sources still have all
        else:
            lineage.replaced |= sources
    return lineage


def _times(names: set[BlockName]) -> dict[tuple[int, int], set[str]]:
    """Return the ids by shard and the time in them."""
    times: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
    for shard, block_id in names:
        times[shard, ulids.time_ms(block_id)].add(block_id)
    return {key: ids for key, ids in times.items() if len(ids) > 1}


def _wanted(
    store: ObjectStore,
    part: list[tuple[str, ObjectInfo]],
    lineage: _Lineage,
    first_sources: dict[tuple[int, int], set[str]],
    outcome: RebuildOutcome,
) -> Iterator[FoundBlock]:
    known = _known(part)
    for path_id, info in part:
        name = _name(info.key)
        if info.key in known:
            outcome.known += 1
        elif name in lineage.replaced:
            outcome.left_out[info.key] = "replaced by the results of a merge"
        elif name in lineage.useless:
            outcome.left_out[info.key] = "another result of its merge is lost; the sources count"
        else:
            found = describe_block(store, path_id, info, {})
            if found.registration is None:
                outcome.bad.append((info.key, found.error or LithifyError("unreadable")))
            elif name and name not in lineage.recorded and _has_source(store, found, first_sources):
                outcome.left_out[info.key] = "its first source is still there and no swap is recorded"
            else:
                yield found


def _has_source(store: ObjectStore, found: FoundBlock, first_sources: dict[tuple[int, int], set[str]]) -> bool:
    """Say whether a block one level below, of the same shard and time, with data of its tenant is in the bucket."""
    assert found.registration is not None
    meta = found.registration.meta
    if meta.compaction_level == 0:
        return False
    for block_id in first_sources.get((meta.shard, ulids.time_ms(meta.id)), set()) - {meta.id}:
        for path_id, info in _objects_of(store, meta.shard, meta.tenant, block_id):
            other = describe_block(store, path_id, info, {}).registration
            if other is not None and other.meta.compaction_level == meta.compaction_level - 1:
                return any(dataset.tenant == meta.tenant for dataset in other.meta.datasets)
    return False


def _objects_of(store: ObjectStore, shard: int, tenant: str, block_id: str) -> Iterator[tuple[str, ObjectInfo]]:
    for folder in (f"segments/{shard}/anonymous/{block_id}/", f"blocks/{shard}/{tenant}/{block_id}/"):
        yield from find_blocks(store, folder)


def _known(part: list[tuple[str, ObjectInfo]]) -> set[str]:
    """Return the keys of objects that the index has already: what makes a second run quick."""
    sizes = {info.key: info.size for _, info in part}
    rows = Block.objects.filter(object_key__in=sizes, ulid__in=[path_id for path_id, _ in part])
    shards = {name[0] for _, info in part if (name := _name(info.key))}
    rows = rows.filter(shard__in=shards) if shards else rows
    return {key for key, size in rows.values_list("object_key", "size_bytes") if sizes[key] == size}


def _name(key: str) -> BlockName | None:
    try:
        named = parse_block_key(key)
    except BadBlockName:
        return None
    return named.shard, named.id


def _register(batch: list[FoundBlock], outcome: RebuildOutcome, actor: str) -> None:
    registrations = [found.registration for found in batch if found.registration is not None]
    if not registrations:
        return
    keys = {registration.meta.id: registration.object_key for registration in registrations}
    added = add_blocks(registrations, actor=actor, kind=Command.Kind.IMPORT_BLOCKS, any_age=True)
    outcome.added += len(added.accepted)
    outcome.known += len(added.duplicates)
    outcome.conflicting.extend(added.conflicting)
    outcome.bad.extend((keys[block_id], error) for block_id, error in added.refused)
