"""The door: a snapshot of one tenant's blocks goes in, the plan and the standing of every block come out; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from engine.planning.intervals import words
from engine.planning.intervals.default import KeyPlan
from engine.planning.intervals.duplicates import find_duplicates
from engine.planning.intervals.model import (
    BlockState,
    Duplicate,
    IntervalBlock,
    IntervalGroup,
    IntervalPlan,
    SlotProgress,
    Standing,
    TakenGroup,
    VisitMark,
)
from engine.planning.intervals.policy import IntervalPolicy
from engine.planning.intervals.visits import fresh_marks, refusal

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

    ``taken`` are the groups that jobs have, ``partial`` the ids of blocks without ``meta.json``, ``visits`` the marks
    of compactors; those by ``own_visitor`` are ours. While another's is fresh, nothing is planned.
    """
    standings = dict.fromkeys(partial, _PARTIAL)
    marks = fresh_marks(visits, own=own_visitor, now_ms=now_ms, timeout_ms=policy.visit_timeout_ms)
    if marks:
        until_ms = marks[0].visited_at_ms + policy.visit_timeout_ms
        return _refused(tenant, blocks, standings, refusal(marks[0]), until_ms)
    taken_ulids = frozenset(ulid for group in taken for ulid in group.ulids)
    live = [block for block in blocks if not block.is_deleted]
    duplicates = find_duplicates(live, keep=taken_ulids)
    gone = {duplicate.block.ulid for duplicate in duplicates}
    by_key: dict[str, list[IntervalBlock]] = {group.group_key: [] for group in taken}
    for block in blocks:
        if block.is_deleted or block.quarantined or block.no_compact:
            standings[block.ulid] = _set_aside(block)
        elif block.ulid not in taken_ulids and block.ulid not in gone:
            of_key = by_key.get(block.group_key)
            if of_key is None:
                of_key = by_key[block.group_key] = []
            of_key.append(block)
    for duplicate in duplicates:
        standings[duplicate.block.ulid] = _contained(duplicate)
    plans = [
        KeyPlan(tenant, key, by_key[key], [one for one in taken if one.group_key == key], policy, now_ms)
        for key in sorted(by_key)
    ]
    return _joined(tenant, plans, standings, tuple(duplicates))


def _joined(
    tenant: str,
    plans: Sequence[KeyPlan],
    standings: dict[str, Standing],
    duplicates: tuple[Duplicate, ...],
) -> IntervalPlan:
    groups: list[IntervalGroup] = []
    slots: list[SlotProgress] = []
    for plan in plans:
        groups += plan.groups
        slots += plan.slots
        standings.update(plan.standings)
    groups.sort(key=_PRIORITY)
    slots.sort(key=_PRIORITY)
    return IntervalPlan(
        tenant=tenant,
        groups=tuple(groups),
        duplicates=duplicates,
        standings=standings,
        slots=tuple(slots),
        compactions=sum(slot.compactions for slot in slots),
        waiting=sum(slot.waiting for slot in slots),
        look_again_ms=min((plan.look_again_ms for plan in plans if plan.look_again_ms is not None), default=None),
    )


def _refused(
    tenant: str, blocks: Iterable[IntervalBlock], standings: dict[str, Standing], why: str, until_ms: int
) -> IntervalPlan:
    waiting = Standing(state=BlockState.WAITING, cause=words.REFUSED, until_ms=until_ms, detail=why)
    for block in blocks:
        is_apart = block.is_deleted or block.quarantined or block.no_compact
        standings[block.ulid] = _set_aside(block) if is_apart else waiting
    return IntervalPlan(tenant=tenant, standings=standings, refusal=why, look_again_ms=until_ms)


_PARTIAL = Standing(state=BlockState.SET_ASIDE, cause=words.PARTIAL)
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
