"""Write lineage to the bucket, so that an index rebuilt from the bucket counts nothing twice.

It runs before objects are deleted, in the order of commands: while a record is missing, all of its sources exist.
Removals are recorded too, or a rebuild would restore dropped blocks; and foreign blocks, or a rebuild could take them
for the result of a merge.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from django.db.models import Exists, Max, OuterRef

from engine.storage.model import ObjectStore
from webadmin.base.database.dialect import wait_for_disk
from webadmin.lanes.profiles.bucket.lineage_objects import BlockName, LineageRecord
from webadmin.lanes.profiles.models import Block, BlockLineage, LineageMark, LineageObject, Tombstone

COMMANDS_PER_ROUND = 100
FOREIGN_BLOCKS_PER_RECORD = 1000
BLOCK_ROWS_PER_ROUND = 10_000


@dataclass(slots=True, kw_only=True)
class _Part:
    """The blocks that a job replaced in a command, or that a removal (no job) removed from one level."""

    command_index: int
    job_id: int | None
    level: int
    sources: list[BlockName] = field(default_factory=list)
    results: list[BlockName] = field(default_factory=list)


def record_lineage(*, store: ObjectStore) -> int:
    """Write all missing records; return their number. Safe to repeat and to run concurrently.

    Raises StorageError if the store fails: the records written so far remain, and nothing may be deleted.
    """
    mark, _ = LineageMark.objects.get_or_create(id=1)
    _record_foreign(store, mark)
    recorded, count = mark.recorded_index, 0
    while commands := _commands_after(recorded):
        wait_for_disk()  # commands that a crash rolls back must not be recorded in the bucket
        for part in _parts(commands):
            _write(store, part)
            count += 1
        recorded = commands[-1]
        LineageMark.objects.filter(id=1, recorded_index__lt=recorded).update(recorded_index=recorded)
    return count


def _commands_after(index: int) -> list[int]:
    """Return the next commands that removed blocks from the index."""
    later = Tombstone.objects.filter(command_index__gt=index).order_by("command_index")
    return list(later.values_list("command_index", flat=True).distinct()[:COMMANDS_PER_ROUND])


def _parts(commands: list[int]) -> list[_Part]:
    parts: dict[tuple[int, int, int], _Part] = {}
    rows = Tombstone.objects.filter(command_index__in=commands).order_by("command_index", "job_id", "block_id")
    for command, job, level, shard, ulid in rows.values_list(
        "command_index", "job_id", "block__level", "block__shard", "block__ulid"
    ):
        part = parts.setdefault((command, job or 0, level), _Part(command_index=command, job_id=job, level=level))
        part.sources.append((shard, ulid))
    results = _results({part.job_id for part in parts.values() if part.job_id})
    for part in parts.values():
        part.results = sorted(results[part.job_id]) if part.job_id else []
    return list(parts.values())


def _results(jobs: set[int]) -> defaultdict[int, set[BlockName]]:
    results: defaultdict[int, set[BlockName]] = defaultdict(set)
    rows = BlockLineage.objects.filter(source__owner_job__in=jobs).values_list("job", "result__shard", "result__ulid")
    for job_id, shard, ulid in rows.distinct():
        results[job_id].add((shard, ulid))
    return results


def _write(store: ObjectStore, part: _Part) -> None:
    record = LineageRecord(
        command_index=part.command_index, level=part.level, sources=tuple(part.sources), results=tuple(part.results)
    )
    store.put(record.key, record.encode())
    LineageObject.objects.get_or_create(
        key=record.key, defaults={"command_index": part.command_index, "job_id": part.job_id}
    )


def _record_foreign(store: ObjectStore, mark: LineageMark) -> None:
    """Record the compacted blocks that no job created.

    A row is passed only when it already existed at the previous run: ids are allocated before their transactions
    commit.
    """
    last = Block.objects.aggregate(last=Max("id"))["last"] or 0
    upto = min(mark.seen_block, mark.foreign_block + BLOCK_ROWS_PER_ROUND)
    rows = Block.objects.filter(id__gt=mark.foreign_block, id__lte=upto, level__gt=0).order_by("id")
    foreign = rows.exclude(Exists(BlockLineage.objects.filter(result=OuterRef("id"))))
    names = list(foreign.values_list("added_command_index", "shard", "ulid"))
    for start in range(0, len(names), FOREIGN_BLOCKS_PER_RECORD):
        part = names[start : start + FOREIGN_BLOCKS_PER_RECORD]
        results = tuple((shard, ulid) for _, shard, ulid in part)
        record = LineageRecord(command_index=max(index for index, *_ in part), level=0, sources=(), results=results)
        store.put(record.key, record.encode())
    LineageMark.objects.filter(id=1).update(foreign_block=max(upto, mark.foreign_block), seen_block=last)
