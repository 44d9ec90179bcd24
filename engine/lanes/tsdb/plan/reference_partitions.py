"""The rules of Cortex' partitioning grouper: groups partitioned by series, with a file and marks per group.

See ``docs/reference/time-interval-compaction.md``.

1. Blocks of level 1 rank below the smallest range; others belong to the range of the group that produced them (or the
   smallest they fit). A slot can be compacted if no slot inside it can, and it has two blocks of a lower rank, or one
   of these and one of its own.
2. Its group is all blocks in it, unless all were produced by a group of the same id. The slot must have ended two
   cleanup intervals ago.
3. A started group is continued unchanged, whatever blocks exist, until the cleaner deletes its file.
4. Groups are ordered by range, start and id; partitions are picked that are neither completed nor visited by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from engine.lanes.tsdb.plan.model import IntervalBlock, IntervalGroup
from engine.lanes.tsdb.plan.partitions import partition_count
from engine.lanes.tsdb.plan.policy import IntervalPolicy
from engine.lanes.tsdb.plan.reference import slots_of
from engine.lanes.tsdb.plan.slots import range_of, slot_start


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedGroup:
    """A group that has a file: the blocks each partition reads, and the partitions that cannot be picked now."""

    range_ms: int
    start_ms: int
    partitions: int
    sources: Mapping[int, tuple[str, ...]]
    completed: frozenset[int] = frozenset()
    visited: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionJob:
    """One partition of a group, new or started, and the ids it reads."""

    range_ms: int
    start_ms: int
    partition: int
    partitions: int
    ulids: tuple[str, ...]


def partition_groups(
    tenant: str,
    blocks: Iterable[IntervalBlock],
    policy: IntervalPolicy,
    *,
    now_ms: int,
    started: Iterable[StartedGroup] = (),
) -> list[IntervalGroup]:
    """Return the new groups in order, without the started ones."""
    taken = {(group.range_ms, group.start_ms) for group in started}
    by_key: dict[str, list[IntervalBlock]] = {}
    for block in blocks:
        by_key.setdefault(block.group_key, []).append(block)
    groups = [
        group
        for key in sorted(by_key)
        for group in _groups_of_key(tenant, key, by_key[key], policy)
        if group.end_ms < now_ms - 2 * policy.cleanup_interval_ms and (group.range_ms, group.start_ms) not in taken
    ]
    return sorted(groups, key=lambda group: (group.range_ms, group.start_ms, group.group_id, group.group_key))


def partition_jobs(groups: Iterable[IntervalGroup], started: Iterable[StartedGroup]) -> list[PartitionJob]:
    """Return the unfinished partitions of new and started groups, in order; the reference picks one at random."""
    jobs = [
        PartitionJob(
            range_ms=group.range_ms,
            start_ms=group.start_ms,
            partition=partition.partition,
            partitions=group.partitions,
            ulids=tuple(block.ulid for block in partition.blocks),
        )
        for group in groups
        for partition in group.group_partitions()
    ]
    jobs += [
        PartitionJob(
            range_ms=group.range_ms,
            start_ms=group.start_ms,
            partition=number,
            partitions=group.partitions,
            ulids=ulids,
        )
        for group in started
        for number, ulids in sorted(group.sources.items())
        if number not in group.completed and number not in group.visited
    ]
    return sorted(jobs, key=lambda job: (job.range_ms, job.start_ms, job.partition))


def _groups_of_key(
    tenant: str, key: str, blocks: list[IntervalBlock], policy: IntervalPolicy
) -> Iterator[IntervalGroup]:
    ordered = sorted(blocks, key=lambda block: (block.min_time_ms, block.ulid))
    classes = {block.ulid: _class(block, policy) for block in ordered}
    possible: list[tuple[int, int]] = []
    for position, range_ms in enumerate(policy.ranges_ms, 1):
        blocked = {slot_start(start_ms, range_ms) for _, start_ms in possible}
        for start_ms, members in slots_of(ordered, range_ms).items():
            below = sum(classes[block.ulid] < position for block in members)
            own = sum(classes[block.ulid] == position for block in members)
            if start_ms in blocked or below == 0 or (below == 1 and own == 0):
                continue
            possible.append((range_ms, start_ms))
            group = IntervalGroup(
                tenant=tenant,
                group_key=key,
                range_ms=range_ms,
                start_ms=start_ms,
                blocks=tuple(members),
                partitions=partition_count(members, policy, range_ms),
            )
            if any(block.produced_by != group.group_id for block in members):
                yield group


def _class(block: IntervalBlock, policy: IntervalPolicy) -> int:
    """Return 0 for level 1, else the rank of a block's range, from 1; misfits rank above all ranges."""
    if block.level == 1:
        return 0
    position = range_of(block, policy.ranges_ms)
    return len(policy.ranges_ms) + 1 if position is None else position + 1
