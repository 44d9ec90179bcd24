"""Queries of the index for operators: finding blocks, sums by level, and the lineage of a block.

A list of millions of blocks is read through an index: an id selects its blocks, everything else is paged from the
newest down.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from django.core.cache import cache
from django.db.models import BigIntegerField, Count, F, Min, OuterRef, Q, QuerySet, Subquery, Sum, Value, Window
from django.db.models.functions import RowNumber

from engine.core import ulids
from engine.formats.profile_block.model import COMPACTION_LEVEL_MAX
from engine.schedule.limits import Scope, ScopeKind
from engine.schedule.model import HOLDING_STATES, JobState, ParkedKind
from webadmin.base.access.confinement import cache_key
from webadmin.lanes.profiles.level_models import LevelPolicy, LevelQueue
from webadmin.lanes.profiles.models import (
    Block,
    BlockLineage,
    Dataset,
    DeadLetter,
    LetterState,
    RemovalCause,
    Tombstone,
)
from webadmin.lanes.profiles.planning.level_policies import ALL_TENANTS
from webadmin.lanes.profiles.states import LIVE_STATES, BlockState
from webadmin.schedule.lanes import QueuedSources

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

DATASETS_SHOWN_MAX = 100
FIRST_QUEUES = 6
FOUND_MAX = 1000
LINEAGE_DEPTH_MAX = 3
LINEAGE_SHOWN_MAX = 12
"""Maximum number of relatives shown below one block; the rest is counted."""
TOTALS_COST_SHARE = 0.02
"""Maximum share of time spent on the sums of the front page: slow results are cached longer."""
TOTALS_KEPT_SECONDS_MIN = 3
TOTALS_KEY = "index.totals"

_ULID_PART = re.compile(rf"[0-7][{ulids.ALPHABET}]{{5,25}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelTotal:
    """The live blocks of one level and state.

    ``held`` is the kind of parked job that owns them, "" if their job is not parked.
    """

    level: int
    state: str
    block_count: int
    byte_count: int
    held: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTotals:
    """Live blocks by level and state, removed ones whose objects still exist, and those that need an action."""

    live: Sequence[LevelTotal]
    awaiting_deletion: int
    failing_deletions: int
    waiting_letters: int
    counted_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelQueues:
    """Sums over the non-empty queues of one level; times are command time."""

    level: int
    queue_count: int
    ready_count: int
    block_count: int
    byte_count: int
    oldest_arrival_ms: int
    next_ready_ms: int | None


def index_totals() -> IndexTotals:
    """Return the sums of the front page, cached for a time proportional to the cost of counting them."""
    key = cache_key(TOTALS_KEY)
    totals: IndexTotals | None = cache.get(key)
    if totals is None:
        started = time.monotonic()
        totals = _count_totals()
        kept_seconds = (time.monotonic() - started) / TOTALS_COST_SHARE
        cache.set(key, totals, timeout=max(kept_seconds, TOTALS_KEPT_SECONDS_MIN))
    return totals


def _count_totals() -> IndexTotals:
    live = (
        Block.objects.filter(state__in=LIVE_STATES)
        .order_by()
        .values("level", "state", "owner_job__state", "owner_job__parked_kind")
        .annotate(blocks=Count("id"), bytes=Sum("size_bytes"))
    )
    counts: defaultdict[tuple[int, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in live:
        is_held = row["state"] == BlockState.OWNED and row["owner_job__state"] == JobState.PARKED
        held = (row["owner_job__parked_kind"] or ParkedKind.EVICTED.value) if is_held else ""
        count = counts[row["level"], row["state"], held]
        count[0] += row["blocks"]
        count[1] += int(row["bytes"] or 0)
    pending = Tombstone.objects.filter(deleted_at_ms=None).order_by()
    tombstones = pending.aggregate(all=Count("id"), failing=Count("id", filter=~Q(last_error="")))
    return IndexTotals(
        live=[
            LevelTotal(level=level, state=state, held=held, block_count=blocks, byte_count=size)
            for (level, state, held), (blocks, size) in sorted(counts.items())
        ],
        awaiting_deletion=tombstones["all"],
        failing_deletions=tombstones["failing"],
        waiting_letters=DeadLetter.objects.filter(state=LetterState.WAITING).count(),
        counted_at=time.time(),
    )


def queued_blocks(scope: Scope, now_ms: int) -> QueuedSources:
    """Return the number of blocks in level queues of a scope; ``now_ms`` is command time."""
    place = {} if scope.kind is ScopeKind.GLOBAL else {scope.kind.value: scope.value}
    sums = LevelQueue.objects.filter(**place, block_count__gt=0).aggregate(
        blocks=Sum("block_count"), due=Sum("block_count", filter=Q(ready_at_ms__lte=now_ms))
    )
    return QueuedSources(count=int(sums["blocks"] or 0), due=int(sums["due"] or 0))


def level_queues(now_ms: int) -> list[LevelQueues]:
    """Return the sums of the non-empty queues by level."""
    is_ready = Q(ready_at_ms__lte=now_ms)
    sums = (
        LevelQueue.objects.filter(block_count__gt=0)
        .order_by()
        .values("level")
        .annotate(
            queue_count=Count("id"),
            ready_count=Count("id", filter=is_ready),
            block_sum=Sum("block_count"),
            bytes=Sum("byte_count"),
            oldest_ms=Min("oldest_arrival_ms"),
            next_ready_ms=Min("ready_at_ms", filter=~is_ready),
        )
    )
    return [
        LevelQueues(
            level=row["level"],
            queue_count=row["queue_count"],
            ready_count=row["ready_count"],
            block_count=int(row["block_sum"]),
            byte_count=int(row["bytes"]),
            oldest_arrival_ms=row["oldest_ms"],
            next_ready_ms=row["next_ready_ms"],
        )
        for row in sums.order_by("level")
    ]


def queues_for_list(now_ms: int) -> QuerySet[LevelQueue]:
    """Return queues annotated with their policy's numbers (null: no policy for this lane and level)."""
    mine = LevelPolicy.objects.filter(Q(tenant=OuterRef("tenant")) | Q(tenant=ALL_TENANTS), lane=OuterRef("lane"))
    policy = mine.filter(level=OuterRef("level")).order_by("-tenant")  # a tenant's own row sorts first
    return LevelQueue.objects.annotate(
        now_ms=Value(now_ms, BigIntegerField()),
        blocks_max=Subquery(policy.values("blocks_max")[:1]),
        age_seconds=Subquery(policy.values("age_seconds")[:1]),
        bytes_max=Subquery(policy.values("bytes_max")[:1]),
    )


def next_queues(now_ms: int) -> list[LevelQueue]:
    """Return the queues of which the next jobs are made."""
    held = queues_for_list(now_ms).filter(block_count__gt=0)
    return list(held.order_by("ready_at_ms", "id")[:FIRST_QUEUES])


def blocks_for_list(now_ms: int) -> QuerySet[Block]:
    """Return blocks with their tenant and job, without the metadata bytes."""
    return (
        Block.objects.annotate(now_ms=Value(now_ms, BigIntegerField()))
        .select_related("tenant", "owner_job")
        .defer("metadata", "owner_job__spec", "owner_job__result")
    )


def find_blocks(blocks: QuerySet[Block], text: str) -> QuerySet[Block]:
    """Return the blocks whose id is in the text (an id, its first 6 or more characters, or an object key)."""
    part = _ulid_part(text)
    if part is None:
        return blocks.none()
    found = blocks_between(part.ljust(ulids.LENGTH, "0"), part.ljust(ulids.LENGTH, "Z"))
    return blocks.filter(id__in=list(found.values_list("id", flat=True)[:FOUND_MAX]))


def blocks_between(lowest: str, highest: str) -> QuerySet[Block]:
    """Return the blocks with ids from the first to the last, in the order of the index on ids.

    The order keeps the query planner from scanning all blocks in row order instead.
    """
    return Block.objects.filter(ulid__gte=lowest, ulid__lte=highest).order_by("ulid", "shard")


def live_blocks(blocks: QuerySet[Block]) -> QuerySet[Block]:
    """Return the live blocks.

    The condition does not use the state: most new blocks are live, so a list of the newest finds them at once without
    sorting all live ones.
    """
    return blocks.filter(removed_command_index=None)


def blocks_in_state(blocks: QuerySet[Block], state: str) -> QuerySet[Block]:
    """Return the blocks in a state. Rare states have no index; they are found by other indexed columns."""
    if state == BlockState.PARKED:
        blocks = blocks.exclude(parked_reason="")
    elif state == BlockState.FINAL:
        blocks = blocks.filter(level__gte=COMPACTION_LEVEL_MAX)
    elif state == BlockState.DROPPED:
        blocks = blocks.filter(id__in=Tombstone.objects.exclude(cause=RemovalCause.REPLACED).values("block"))
    return blocks.filter(state=state)


def owned_blocks(blocks: QuerySet[Block]) -> QuerySet[Block]:
    """Return the sources of jobs, by way of the jobs that own any: there is no index on this state."""
    return blocks.filter(state=BlockState.OWNED, owner_job__state__in=HOLDING_STATES)


def whole_ulid(text: str) -> str | None:
    """Return the last block id in a text, such as an object key."""
    whole = [part for part in _ULID_PART.findall(text.upper()) if len(part) == ulids.LENGTH]
    return whole[-1] if whole else None


def _ulid_part(text: str) -> str | None:
    if whole := whole_ulid(text):
        return whole
    match = _ULID_PART.fullmatch(text.strip().upper())
    return match[0] if match else None


def datasets_of(block: Block) -> list[Dataset]:
    """Return the first datasets of a block with their names and label sets."""
    rows = Dataset.objects.filter(block=block).select_related("tenant", "name", "label_sets").order_by("position")
    return list(rows[:DATASETS_SHOWN_MAX])


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A block related to another one, and the next relatives; ``left_out`` of these were not read."""

    block: Block
    relatives: Sequence[Relative] = ()
    left_out: int = 0


def ancestry(block: Block) -> Relative:
    """Return the sources of a block, their sources, and so on; one query per step."""
    return _walk(block, near="result_id", far="source")


def progeny(block: Block) -> Relative:
    """Return the results of merging a block, their results, and so on."""
    return _walk(block, near="source_id", far="result")


def _walk(block: Block, *, near: str, far: str) -> Relative:
    steps: list[dict[int, list[WithAnnotations[BlockLineage, EdgeColumns]]]] = []
    here: Iterable[int] = [block.pk]
    while here and len(steps) < LINEAGE_DEPTH_MAX:
        edges = _edges(here, near=near, far=far)
        steps.append(edges)
        here = {getattr(edge, far).pk for found in edges.values() for edge in found}
    return _relative(block, steps, far)


class EdgeColumns(TypedDict):
    """The number of an edge among those of its block, and how many these are."""

    number: int
    of: int


def _edges(
    block_ids: Iterable[int], *, near: str, far: str
) -> dict[int, list[WithAnnotations[BlockLineage, EdgeColumns]]]:
    numbered = (
        BlockLineage.objects.filter(**{f"{near}__in": list(block_ids)})
        .annotate(
            number=Window(RowNumber(), partition_by=[F(near)], order_by=F(f"{far}_id").asc()),
            of=Window(Count("id"), partition_by=[F(near)]),
        )
        .filter(number__lte=LINEAGE_SHOWN_MAX)
        .select_related(far, f"{far}__tenant")
        .defer(f"{far}__metadata")
        .order_by(near, "number")
    )
    edges: dict[int, list[WithAnnotations[BlockLineage, EdgeColumns]]] = defaultdict(list)
    for edge in numbered:
        edges[getattr(edge, near)].append(edge)
    return edges


def _relative(
    block: Block, steps: Sequence[dict[int, list[WithAnnotations[BlockLineage, EdgeColumns]]]], far: str
) -> Relative:
    edges = steps[0].get(block.pk, []) if steps else []
    return Relative(
        block=block,
        relatives=[_relative(getattr(edge, far), steps[1:], far) for edge in edges],
        left_out=edges[0].of - len(edges) if edges else 0,
    )


def results_of_job(job_id: int) -> list[Block]:
    """Return the blocks that a job created."""
    made = BlockLineage.objects.filter(source__owner_job=job_id).order_by().values("result_id").distinct()
    return list(Block.objects.filter(id__in=made).select_related("tenant").defer("metadata").order_by("id")[:100])


def sources_of_job(job_id: int, count: int) -> list[Block]:
    """Return the blocks that a job merges or merged, in order of arrival."""
    rows = Block.objects.filter(owner_job_id=job_id).select_related("tenant").defer("metadata")
    return list(rows.order_by("arrived_at_ms", "id")[:count])


def oldest_in_queue(queue_id: int, count: int) -> list[Block]:
    """Return the oldest blocks of a queue."""
    return list(Block.objects.queued_in(queue_id).defer("metadata")[:count])


def newest_of_tenant(tenant: str, count: int) -> list[Block]:
    """Return the live blocks of a tenant with the latest data."""
    rows = Block.objects.live().filter(tenant__name=tenant).defer("metadata")
    return list(rows.select_related("tenant").order_by("-max_time_ms")[:count])
