"""Exclude blocks that are past retention from planning: they are dropped soon and not merged first.

Nothing is read while all blocks of a poll's queues are young: no rule keeps data for less than a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from django.db import transaction

from webadmin.base.database.dialect import first_rows
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.planning.level_queues import QUEUED_IN
from webadmin.lanes.profiles.planning.queue_heads import BLOCK_COLUMNS, QueueHead, queued_block
from webadmin.lanes.profiles.services.retain import past_retention
from webadmin.schedule.command_log import take_head

YOUNG_MS = 24 * 3600 * 1000
"""Blocks younger than this, by creation time, are never past retention."""
BACKOFF_MS = 60_000
"""Back-off of a queue that contains only blocks past retention, in milliseconds."""


def past_retention_blocks(heads: Sequence[QueueHead], *, wall_ms: int) -> tuple[tuple[QueueHead, ...], tuple[int, ...]]:
    """Return the heads without blocks past retention, and the row ids of queues that have no other blocks."""
    old = [block.id for front in heads for block in front.blocks if block.created_at_ms < wall_ms - YOUNG_MS]
    outdated = past_retention(old, now_ms=wall_ms) if old else set()
    if not outdated:
        return tuple(heads), ()
    left = tuple(_without(front, outdated, wall_ms) for front in heads)
    return left, tuple(front.queue.id for front in left if front.planned_max and not front.to_plan().blocks)


def back_off_queues(queue_ids: Iterable[int], *, now_ms: int) -> None:
    """Back off these queues for a minute. No entry in the log: it changes what polls read, not the plan."""
    with transaction.atomic(durable=True):
        take_head()
        LevelQueue.objects.filter(id__in=list(queue_ids), block_count__gt=0).update(
            ready_at_ms=now_ms + BACKOFF_MS, is_marked_ready=False
        )


def _without(front: QueueHead, outdated: set[int], wall_ms: int) -> QueueHead:
    kept_out = frozenset(block.id for block in front.blocks if block.id in outdated)
    if not kept_out:
        return front
    if len(kept_out) < len(front.blocks):
        return replace(front, kept_out=kept_out)
    # All blocks that were read are excluded: younger blocks behind them do not wait for their deletion.
    young = f"{QUEUED_IN} AND created_at_ms >= %s"
    key = (front.queue.id, wall_ms - YOUNG_MS)
    [rows] = first_rows(Block, BLOCK_COLUMNS, young, "arrived_at_ms, ulid", [(key, len(front.blocks))])
    return replace(front, kept_out=kept_out, behind=tuple(queued_block(row) for row in rows))
