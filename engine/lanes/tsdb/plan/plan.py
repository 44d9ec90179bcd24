"""Plan one tenant: from a snapshot of its blocks to groups and the status of every block. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from engine.core.formatting import format_time
from engine.lanes.tsdb.plan import policy as rules
from engine.lanes.tsdb.plan import reasons
from engine.lanes.tsdb.plan.default import KeyPlan, uploaded_ms
from engine.lanes.tsdb.plan.duplicates import assess_duplicates
from engine.lanes.tsdb.plan.model import (
    BlockState,
    BlockStatus,
    Duplicate,
    IntervalBlock,
    IntervalGroup,
    IntervalPlan,
    SlotProgress,
    TakenGroup,
    VisitMark,
    is_downsampled,
)
from engine.lanes.tsdb.plan.policy import IntervalPolicy
from engine.lanes.tsdb.plan.reference import plan_reference
from engine.lanes.tsdb.plan.reference_local import plan_local
from engine.lanes.tsdb.plan.reference_partitions import partition_groups
from engine.schedule.errors import SnapshotRefused

_PRIORITY = attrgetter("range_ms", "start_ms", "group_key")


def plan_intervals(
    tenant: str,
    blocks: Sequence[IntervalBlock],
    policy: IntervalPolicy,
    *,
    now_ms: int,
    taken: Sequence[TakenGroup] = (),
    partial: Iterable[str] = (),
    visits: Iterable[VisitMark] = (),
    own_visitor: str = "",
) -> IntervalPlan:
    """Plan one tenant of one bucket; the order of ``blocks`` does not matter.

    ``taken`` are the groups in jobs, ``partial`` the ids of blocks without ``meta.json``, ``visits`` the visit marks of
    compactors; those of ``own_visitor`` are ignored. While a foreign mark is fresh nothing is planned; the reference
    rules skip groups with marked blocks instead. Raises SnapshotRefused if a block appears twice.
    """
    marks = fresh_marks(visits, own=own_visitor, now_ms=now_ms, timeout_ms=policy.visit_timeout_ms)
    snapshot = _classify_blocks(blocks, taken, partial, has_duplicates=policy.rules != rules.REFERENCE_PARTITIONS)
    if policy.rules != rules.DEFAULT:
        return _reference_plan(tenant, snapshot, policy, now_ms, taken, frozenset(mark.place for mark in marks))
    if marks:
        return _refused_plan(
            tenant, blocks, snapshot, refusal(marks[0]), marks[0].visited_at_ms + policy.visit_timeout_ms
        )
    plans = [
        KeyPlan(tenant, key, of_key, [group for group in taken if group.group_key == key], policy, now_ms)
        for key, of_key in sorted(snapshot.by_key.items())
    ]
    return _combined_plan(tenant, plans, snapshot)


@dataclass(slots=True)
class _Snapshot:
    """The blocks that may be merged, by group key, and the status of all others."""

    by_key: dict[str, list[IntervalBlock]]
    statuses: dict[str, BlockStatus]
    duplicates: list[Duplicate] = field(default_factory=list)
    doubts: dict[str, str] = field(default_factory=dict)


def _classify_blocks(
    blocks: Sequence[IntervalBlock], taken: Sequence[TakenGroup], partial: Iterable[str], *, has_duplicates: bool
) -> _Snapshot:
    if len({block.ulid for block in blocks}) < len(blocks):
        raise SnapshotRefused("a block appears twice in the snapshot")
    taken_ulids = frozenset(ulid for group in taken for ulid in group.ulids)
    downsampled_keys = {key for key in {block.group_key for block in blocks} if is_downsampled(key)}
    found = _Snapshot(
        by_key={group.group_key: [] for group in taken}, statuses=dict.fromkeys(partial, _PARTIAL), duplicates=[]
    )
    if has_duplicates:
        found.duplicates, found.doubts = assess_duplicates(
            [block for block in blocks if not block.is_deleted and block.group_key not in downsampled_keys],
            keep=taken_ulids,
        )
    duplicate_ulids = {duplicate.block.ulid for duplicate in found.duplicates}
    by_key = found.by_key
    for block in blocks:
        if block.is_deleted or block.quarantined or block.no_compact:
            found.statuses[block.ulid] = _quarantined(block)
        elif block.ulid in taken_ulids or block.ulid in duplicate_ulids:
            continue
        elif block.group_key in downsampled_keys:
            found.statuses[block.ulid] = _DOWNSAMPLED
        else:
            of_key = by_key.get(block.group_key)
            if of_key is None:
                of_key = by_key[block.group_key] = []
            of_key.append(block)
    for duplicate in found.duplicates:
        found.statuses[duplicate.block.ulid] = _duplicate_status(duplicate)
    return found


def _combined_plan(tenant: str, plans: Sequence[KeyPlan], snapshot: _Snapshot) -> IntervalPlan:
    groups: list[IntervalGroup] = []
    slots: list[SlotProgress] = []
    statuses = snapshot.statuses
    for plan in plans:
        groups += plan.groups
        slots += plan.slots
        statuses.update(plan.statuses)
    groups.sort(key=_PRIORITY)
    slots.sort(key=_PRIORITY)
    return IntervalPlan(
        tenant=tenant,
        groups=tuple(groups),
        duplicates=tuple(snapshot.duplicates),
        statuses=statuses,
        doubts=snapshot.doubts,
        slots=tuple(slots),
        compactions=sum([slot.compactions for slot in slots]),
        waiting=sum([slot.waiting for slot in slots]),
        recheck_ms=min((plan.recheck_ms for plan in plans if plan.recheck_ms is not None), default=None),
    )


def _refused_plan(
    tenant: str, blocks: Iterable[IntervalBlock], snapshot: _Snapshot, why: str, until_ms: int
) -> IntervalPlan:
    waiting = BlockStatus(state=BlockState.WAITING, cause=reasons.REFUSED, until_ms=until_ms, detail=why)
    excluded = {ulid for ulid, status in snapshot.statuses.items() if status.state is BlockState.SET_ASIDE}
    statuses = snapshot.statuses | {block.ulid: waiting for block in blocks if block.ulid not in excluded}
    return IntervalPlan(tenant=tenant, statuses=statuses, refusal=why, recheck_ms=until_ms)


def _reference_plan(
    tenant: str,
    snapshot: _Snapshot,
    policy: IntervalPolicy,
    now_ms: int,
    taken: Sequence[TakenGroup],
    visited: frozenset[str],
) -> IntervalPlan:
    """Plan by the reference rules, which give little progress information and few reasons."""
    statuses = snapshot.statuses
    candidates: list[IntervalBlock] = []
    for block in (block for key in sorted(snapshot.by_key) for block in snapshot.by_key[key]):
        quiet_ms = uploaded_ms(block, now_ms) + policy.consistency_delay_ms
        if block.level == 1 and quiet_ms > now_ms:
            statuses[block.ulid] = BlockStatus(state=BlockState.WAITING, cause=reasons.FRESH, until_ms=quiet_ms)
        else:
            statuses[block.ulid] = BlockStatus(state=BlockState.WAITING, cause=reasons.NOT_CHOSEN, detail=policy.rules)
            candidates.append(block)
    groups = _reference_groups(tenant, candidates, policy, now_ms, taken, visited)
    for group in groups:
        status = BlockStatus(
            state=BlockState.GROUPED, cause=reasons.IN_GROUP, range_ms=group.range_ms, start_ms=group.start_ms
        )
        statuses.update((block.ulid, status) for block in group.blocks)
    for held in taken:
        status = BlockStatus(
            state=BlockState.TAKEN,
            cause=reasons.IN_JOB,
            range_ms=held.range_ms,
            start_ms=held.start_ms,
            detail=held.why,
        )
        statuses.update((ulid, status) for ulid in held.ulids)
    return IntervalPlan(
        tenant=tenant,
        groups=tuple(groups),
        duplicates=tuple(snapshot.duplicates),
        statuses=statuses,
        doubts=snapshot.doubts,
        compactions=len(groups),
        waiting=sum(len(group.blocks) for group in groups),
    )


def _reference_groups(
    tenant: str,
    blocks: list[IntervalBlock],
    policy: IntervalPolicy,
    now_ms: int,
    taken: Sequence[TakenGroup],
    visited: frozenset[str],
) -> list[IntervalGroup]:
    busy = [(group.group_key, group.start_ms, group.start_ms + group.range_ms) for group in taken]

    def is_free(group: IntervalGroup) -> bool:
        return not any(
            key == group.group_key and start_ms < group.end_ms and group.start_ms < end_ms
            for key, start_ms, end_ms in busy
        ) and not any(block.ulid in visited for block in group.blocks)

    if policy.rules == rules.REFERENCE:
        found = plan_reference(tenant, blocks, policy, now_ms=now_ms)
    elif policy.rules == rules.REFERENCE_PARTITIONS:
        found = partition_groups(tenant, blocks, policy, now_ms=now_ms)
    else:
        by_key: dict[str, list[IntervalBlock]] = {}
        for block in blocks:
            by_key.setdefault(block.group_key, []).append(block)
        chosen = (plan_local(tenant, of_key, policy) for of_key in by_key.values())
        found = [group for group in chosen if group is not None]
    free = [group for group in found if is_free(group)]
    return free[: policy.groups_max] if policy.groups_max else free


_PARTIAL = BlockStatus(state=BlockState.SET_ASIDE, cause=reasons.PARTIAL)
_DOWNSAMPLED = BlockStatus(state=BlockState.FINAL, cause=reasons.DOWNSAMPLED)
_DELETED = BlockStatus(state=BlockState.SET_ASIDE, cause=reasons.DELETED)


def _quarantined(block: IntervalBlock) -> BlockStatus:
    if block.is_deleted:
        return _DELETED
    if block.quarantined:
        return BlockStatus(state=BlockState.SET_ASIDE, cause=reasons.QUARANTINED, detail=block.quarantined)
    return BlockStatus(state=BlockState.SET_ASIDE, cause=reasons.NO_COMPACT, detail=block.no_compact)


def _duplicate_status(duplicate: Duplicate) -> BlockStatus:
    held_by = ", ".join(duplicate.covered_by)
    return BlockStatus(state=BlockState.DUPLICATE, cause=reasons.CONTAINED, detail=held_by)


def fresh_marks(visits: Iterable[VisitMark], *, own: str, now_ms: int, timeout_ms: int) -> list[VisitMark]:
    """Return the unexpired marks of others, the one that expires last first."""
    fresh = (mark for mark in visits if mark.visitor != own and mark.visited_at_ms + timeout_ms > now_ms)
    return sorted(fresh, key=lambda mark: (-mark.visited_at_ms, mark.place, mark.visitor))


def refusal(mark: VisitMark) -> str:
    """Return why a tenant with this mark is not planned."""
    seen = format_time(mark.visited_at_ms)
    return f"another compactor, {mark.visitor}, left a visit mark on {mark.place} at {seen}; stop it first"
