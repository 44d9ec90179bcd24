"""The rules of the single-worker planner of Prometheus and Thanos: one group, or none.

See ``docs/reference/time-interval-compaction.md``.

1. The first run of overlapping blocks is merged, and nothing else.
2. Otherwise the newest block is excluded, and the first group of two or more blocks is merged that spans its range
   exactly, or ends before the newest of the others begins. A group with a failed block is skipped.
3. Otherwise the newest large block with many tombstones is rewritten alone.

Blocks with stale or selected series are planned separately, after the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from engine.lanes.tsdb.plan import reasons
from engine.lanes.tsdb.plan.model import IntervalBlock, IntervalGroup
from engine.lanes.tsdb.plan.policy import IntervalPolicy
from engine.lanes.tsdb.plan.slots import fits, slot_start

TOMBSTONE_SHARE = 0.05
SEPARATE_HINTS = frozenset({"from-stale-series", "from-selected-series"})


def plan_local(
    tenant: str,
    blocks: Sequence[IntervalBlock],
    policy: IntervalPolicy,
    *,
    is_excluded: Callable[[IntervalBlock], bool] = lambda block: False,
) -> IntervalGroup | None:
    """Return the next group of a single worker for the blocks of one key, None if there is none.

    The first excluded block and all after it are not considered.
    """
    ordered = sorted(blocks, key=lambda block: (block.min_time_ms, block.ulid))
    considered = list(takewhile(lambda block: not is_excluded(block), ordered))
    apart = [block for block in considered if SEPARATE_HINTS.intersection(block.hints)]
    regular = [block for block in considered if not SEPARATE_HINTS.intersection(block.hints)]
    for candidates in (regular, apart):
        chosen, cause = _choose(candidates, policy.ranges_ms)
        if chosen:
            return _group(tenant, chosen, cause, policy)
    return None


def _choose(blocks: Sequence[IntervalBlock], ranges_ms: Sequence[int]) -> tuple[list[IntervalBlock], str]:
    run = overlapping_run(blocks)
    if run:
        return run, reasons.VERTICAL
    older = blocks[:-1]
    group = _adjacent(older, ranges_ms)
    if group:
        return group, reasons.HORIZONTAL
    middle_ms = ranges_ms[len(ranges_ms) // 2]
    for block in reversed(older):
        is_small = block.max_time_ms - block.min_time_ms < middle_ms
        is_full = block.tombstones >= block.series if is_small else _share(block) > TOMBSTONE_SHARE
        if block.tombstones and is_full:
            return [block], reasons.REWRITE
    return [], ""


def overlapping_run(blocks: Sequence[IntervalBlock]) -> list[IntervalBlock]:
    """Return the first run of overlapping blocks, which must be ordered by start; empty if there is none."""
    run: list[IntervalBlock] = []
    end_ms = 0
    for block in blocks:
        if run and block.min_time_ms >= end_ms:
            if len(run) > 1:
                return run
            run = []
        end_ms = max(end_ms, block.max_time_ms) if run else block.max_time_ms
        run.append(block)
    return run if len(run) > 1 else []


def _adjacent(blocks: Sequence[IntervalBlock], ranges_ms: Sequence[int]) -> list[IntervalBlock]:
    if not blocks:
        return []
    newest_start_ms = blocks[-1].min_time_ms
    for range_ms in ranges_ms[1:]:
        for group in _split(blocks, range_ms):
            if len(group) < 2 or any(block.is_failed for block in group):
                continue
            end_ms = max(block.max_time_ms for block in group)
            if end_ms - group[0].min_time_ms == range_ms or end_ms <= newest_start_ms:
                return group
    return []


def _split(blocks: Sequence[IntervalBlock], range_ms: int) -> list[list[IntervalBlock]]:
    """Split ordered blocks at slot borders; a block that crosses a border ends the group before it."""
    groups: list[list[IntervalBlock]] = []
    slot_ms: int | None = None
    for block in blocks:
        is_fitting = fits(block.min_time_ms, block.max_time_ms, range_ms)
        start_ms = slot_start(block.min_time_ms, range_ms) if is_fitting else None
        if start_ms is not None and start_ms == slot_ms:
            groups[-1].append(block)
        elif start_ms is not None:
            groups.append([block])
        slot_ms = start_ms
    return groups


def _share(block: IntervalBlock) -> float:
    return block.tombstones / (block.series + 1)


def _group(tenant: str, blocks: Sequence[IntervalBlock], cause: str, policy: IntervalPolicy) -> IntervalGroup:
    """Return the blocks as a group of the smallest range that holds them, or of the largest if none does."""
    first_ms = blocks[0].min_time_ms
    last_ms = max(block.max_time_ms for block in blocks)
    range_ms = next((size for size in policy.ranges_ms if fits(first_ms, last_ms, size)), policy.ranges_ms[-1])
    return IntervalGroup(
        tenant=tenant,
        group_key=blocks[0].group_key,
        range_ms=range_ms,
        start_ms=slot_start(first_ms, range_ms),
        blocks=tuple(blocks),
        cause=cause,
    )
