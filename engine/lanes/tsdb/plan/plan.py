"""The door: a snapshot of one tenant's blocks goes in, the plan and the standing of every block come out; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from engine.lanes.tsdb.plan import policy as rules
from engine.lanes.tsdb.plan import words
from engine.lanes.tsdb.plan.default import KeyPlan, uploaded_ms
from engine.lanes.tsdb.plan.duplicates import weigh_duplicates
from engine.lanes.tsdb.plan.model import (
    BlockState,
    Duplicate,
    IntervalBlock,
    IntervalGroup,
    IntervalPlan,
    SlotProgress,
    Standing,
    TakenGroup,
    VisitMark,
    is_downsampled,
)
from engine.lanes.tsdb.plan.policy import IntervalPolicy
from engine.lanes.tsdb.plan.reference import plan_reference
from engine.lanes.tsdb.plan.reference_local import plan_local
from engine.lanes.tsdb.plan.reference_partitions import partition_groups
from engine.lanes.tsdb.plan.visits import fresh_marks, refusal
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
    """Plan one tenant of one bucket; the order of ``blocks`` makes no difference.

    Raises SnapshotRefused if a block is there twice.

    ``taken`` are the groups that jobs have, ``partial`` the ids of blocks without ``meta.json``, ``visits`` the marks
    of compactors; those by ``own_visitor`` are ours. While another's is fresh, nothing is planned; the rules of the
    reference pass over the groups with marked blocks instead.
    """
    marks = fresh_marks(visits, own=own_visitor, now_ms=now_ms, timeout_ms=policy.visit_timeout_ms)
    snapshot = _sort_out(blocks, taken, partial, has_duplicates=policy.rules != rules.REFERENCE_PARTITIONS)
    if policy.rules != rules.DEFAULT:
        return _planned_as_reference(tenant, snapshot, policy, now_ms, taken, frozenset(mark.place for mark in marks))
    if marks:
        return _refused(tenant, blocks, snapshot, refusal(marks[0]), marks[0].visited_at_ms + policy.visit_timeout_ms)
    plans = [
        KeyPlan(tenant, key, of_key, [group for group in taken if group.group_key == key], policy, now_ms)
        for key, of_key in sorted(snapshot.by_key.items())
    ]
    return _joined(tenant, plans, snapshot)


@dataclass(slots=True)
class _Snapshot:
    """The blocks that may be merged, by group key, and where the others stand."""

    by_key: dict[str, list[IntervalBlock]]
    standings: dict[str, Standing]
    duplicates: list[Duplicate] = field(default_factory=list)
    doubts: dict[str, str] = field(default_factory=dict)


def _sort_out(
    blocks: Sequence[IntervalBlock], taken: Sequence[TakenGroup], partial: Iterable[str], *, has_duplicates: bool
) -> _Snapshot:
    if len({block.ulid for block in blocks}) < len(blocks):
        raise SnapshotRefused("a block is in the snapshot twice: it would be a duplicate of itself")
    taken_ulids = frozenset(ulid for group in taken for ulid in group.ulids)
    left_alone = {key for key in {block.group_key for block in blocks} if is_downsampled(key)}
    found = _Snapshot(
        by_key={group.group_key: [] for group in taken}, standings=dict.fromkeys(partial, _PARTIAL), duplicates=[]
    )
    if has_duplicates:
        found.duplicates, found.doubts = weigh_duplicates(
            [block for block in blocks if not block.is_deleted and block.group_key not in left_alone], keep=taken_ulids
        )
    gone = {duplicate.block.ulid for duplicate in found.duplicates}
    by_key = found.by_key
    for block in blocks:
        if block.is_deleted or block.quarantined or block.no_compact:
            found.standings[block.ulid] = _set_aside(block)
        elif block.ulid in taken_ulids or block.ulid in gone:
            continue
        elif block.group_key in left_alone:
            found.standings[block.ulid] = _DOWNSAMPLED
        else:
            of_key = by_key.get(block.group_key)
            if of_key is None:
                of_key = by_key[block.group_key] = []
            of_key.append(block)
    for duplicate in found.duplicates:
        found.standings[duplicate.block.ulid] = _contained(duplicate)
    return found


def _joined(tenant: str, plans: Sequence[KeyPlan], snapshot: _Snapshot) -> IntervalPlan:
    groups: list[IntervalGroup] = []
    slots: list[SlotProgress] = []
    standings = snapshot.standings
    for plan in plans:
        groups += plan.groups
        slots += plan.slots
        standings.update(plan.standings)
    groups.sort(key=_PRIORITY)
    slots.sort(key=_PRIORITY)
    return IntervalPlan(
        tenant=tenant,
        groups=tuple(groups),
        duplicates=tuple(snapshot.duplicates),
        standings=standings,
        doubts=snapshot.doubts,
        slots=tuple(slots),
        compactions=sum([slot.compactions for slot in slots]),
        waiting=sum([slot.waiting for slot in slots]),
        look_again_ms=min((plan.look_again_ms for plan in plans if plan.look_again_ms is not None), default=None),
    )


def _refused(
    tenant: str, blocks: Iterable[IntervalBlock], snapshot: _Snapshot, why: str, until_ms: int
) -> IntervalPlan:
    waiting = Standing(state=BlockState.WAITING, cause=words.REFUSED, until_ms=until_ms, detail=why)
    is_apart = {ulid for ulid, standing in snapshot.standings.items() if standing.state is BlockState.SET_ASIDE}
    standings = snapshot.standings | {block.ulid: waiting for block in blocks if block.ulid not in is_apart}
    return IntervalPlan(tenant=tenant, standings=standings, refusal=why, look_again_ms=until_ms)


def _planned_as_reference(
    tenant: str,
    snapshot: _Snapshot,
    policy: IntervalPolicy,
    now_ms: int,
    taken: Sequence[TakenGroup],
    visited: frozenset[str],
) -> IntervalPlan:
    """Plan by the rules of the reference; progress and reasons are no more than those tell, which is little."""
    standings = snapshot.standings
    candidates: list[IntervalBlock] = []
    for block in (block for key in sorted(snapshot.by_key) for block in snapshot.by_key[key]):
        quiet_ms = uploaded_ms(block, now_ms) + policy.consistency_delay_ms
        if block.level == 1 and quiet_ms > now_ms:
            standings[block.ulid] = Standing(state=BlockState.WAITING, cause=words.FRESH, until_ms=quiet_ms)
        else:
            standings[block.ulid] = Standing(state=BlockState.WAITING, cause=words.NOT_CHOSEN, detail=policy.rules)
            candidates.append(block)
    groups = _reference_groups(tenant, candidates, policy, now_ms, taken, visited)
    for group in groups:
        standing = Standing(
            state=BlockState.GROUPED, cause=words.IN_GROUP, range_ms=group.range_ms, start_ms=group.start_ms
        )
        standings.update((block.ulid, standing) for block in group.blocks)
    for one in taken:
        standing = Standing(
            state=BlockState.TAKEN,
            cause=words.IN_JOB,
            range_ms=one.range_ms,
            start_ms=one.start_ms,
            detail=one.why,
        )
        standings.update((ulid, standing) for ulid in one.ulids)
    return IntervalPlan(
        tenant=tenant,
        groups=tuple(groups),
        duplicates=tuple(snapshot.duplicates),
        standings=standings,
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


_PARTIAL = Standing(state=BlockState.SET_ASIDE, cause=words.PARTIAL)
_DOWNSAMPLED = Standing(state=BlockState.FINAL, cause=words.DOWNSAMPLED)
_DELETED = Standing(state=BlockState.SET_ASIDE, cause=words.DELETED)


def _set_aside(block: IntervalBlock) -> Standing:
    if block.is_deleted:
        return _DELETED
    if block.quarantined:
        return Standing(state=BlockState.SET_ASIDE, cause=words.QUARANTINED, detail=block.quarantined)
    return Standing(state=BlockState.SET_ASIDE, cause=words.NO_COMPACT, detail=block.no_compact)


def _contained(duplicate: Duplicate) -> Standing:
    held_by = ", ".join(duplicate.covered_by)
    return Standing(state=BlockState.DUPLICATE, cause=words.CONTAINED, detail=held_by)
