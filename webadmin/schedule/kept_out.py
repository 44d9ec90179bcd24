"""Keeps blocks out of planning that a lane is about to drop: what is past retention is not merged first.

Asks nothing while all blocks of a poll's queues are young: no rule keeps data for less than a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from django.db import transaction

from webadmin.base.database.dialect import first_rows
from webadmin.lanes.profiles.models import Block
from webadmin.schedule.command_log import take_head
from webadmin.schedule.lanes import lane_of
from webadmin.schedule.level_queues import QUEUED_IN
from webadmin.schedule.models import LevelQueue
from webadmin.schedule.planning_view import BLOCK_COLUMNS, QueueFront, queued_block

YOUNG_MS = 24 * 3600 * 1000
"""How young a block is that nobody drops for its age, by the time it was created."""
REST_MS = 60_000
"""After how long a queue is looked at again that holds nothing but what is dropped soon."""


def without_outdated(fronts: Sequence[QueueFront], *, wall_ms: int) -> tuple[tuple[QueueFront, ...], tuple[int, ...]]:
    """Return the fronts without what is to be dropped, and the row ids of queues of which that leaves nothing."""
    old = {
        front.queue.id: [block.id for block in front.blocks if block.created_at_ms < wall_ms - YOUNG_MS]
        for front in fronts
    }
    if not any(old.values()):
        return tuple(fronts), ()
    outdated: set[int] = set()
    for lane in sorted({front.queue.lane for front in fronts}):
        asked = [id for front in fronts if front.queue.lane == lane for id in old[front.queue.id]]
        outdated |= lane_of(lane).outdated(asked, wall_ms) if asked else set()
    left = tuple(_without(front, outdated, wall_ms) for front in fronts)
    return left, tuple(front.queue.id for front in left if front.planned_max and not front.to_plan().blocks)


def rest_queues(queue_ids: Iterable[int], *, now_ms: int) -> None:
    """Let these queues be for a while. No entry in the log: it changes what polls look at, not the plan."""
    with transaction.atomic(durable=True):
        take_head()
        LevelQueue.objects.filter(id__in=list(queue_ids), block_count__gt=0).update(
            ready_at_ms=now_ms + REST_MS, is_noticed=False
        )


def _without(front: QueueFront, outdated: set[int], wall_ms: int) -> QueueFront:
    kept_out = frozenset(block.id for block in front.blocks if block.id in outdated)
    if not kept_out:
        return front
    if len(kept_out) < len(front.blocks):
        return replace(front, kept_out=kept_out)
    # Nothing of what was read is left: younger blocks behind these do not wait for their end.
    young = f"{QUEUED_IN} AND created_at_ms >= %s"
    key = (front.queue.id, wall_ms - YOUNG_MS)
    [rows] = first_rows(Block, BLOCK_COLUMNS, young, "arrived_at_ms, ulid", [(key, len(front.blocks))])
    return replace(front, kept_out=kept_out, behind=tuple(queued_block(row) for row in rows))
