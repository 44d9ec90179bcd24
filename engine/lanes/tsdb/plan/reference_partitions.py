"""The rules of the partitioning grouper that inspired the lane: groups cut by series, with a file and marks per group.

1. Blocks of level 1 lie below the smallest range, others in the range of the group that made them (or the smallest they
   fit). A slot can take compaction if no slot inside it can, and it has two blocks from below, or one and one its own.
2. Its group is all that lies in it, unless every block was made by a group of that very id. The slot's end must be two
   intervals of the cleaner ago.
3. A group that was begun is taken up as it was, whatever blocks there are now, until the cleaner removes its file.
4. Groups go by range, start and id; their parts are picked if they are neither completed nor visited by others.
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
class BegunGroup:
    """A group that has a file: how it is cut, what each part reads, and which parts nobody may pick now."""

    range_ms: int
    start_ms: int
    partitions: int
    parts: Mapping[int, tuple[str, ...]]
    completed: frozenset[int] = frozenset()
    visited: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartJob:
    """One part of a group, new or begun: the ids it reads."""

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
    begun: Iterable[BegunGroup] = (),
) -> list[IntervalGroup]:
    """Return the new groups, in order; those that were begun are not among them."""
    taken = {(group.range_ms, group.start_ms) for group in begun}
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


def part_jobs(groups: Iterable[IntervalGroup], begun: Iterable[BegunGroup]) -> list[PartJob]:
    """Return the parts of new and begun groups that are not done, in order; the reference takes a group's at random."""
    jobs = [
        PartJob(
            range_ms=group.range_ms,
            start_ms=group.start_ms,
            partition=part.partition,
            partitions=group.partitions,
            ulids=tuple(block.ulid for block in part.blocks),
        )
        for group in groups
        for part in group.parts()
    ]
    jobs += [
        PartJob(
            range_ms=group.range_ms, start_ms=group.start_ms, partition=part, partitions=group.partitions, ulids=ulids
        )
        for group in begun
        for part, ulids in sorted(group.parts.items())
        if part not in group.completed and part not in group.visited
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
    """Return 0 for level 1, else one more than the position of the range a block belongs to; misfits are above all."""
    if block.level == 1:
        return 0
    position = range_of(block, policy.ranges_ms)
    return len(policy.ranges_ms) + 1 if position is None else position + 1
