"""Our rules: which slots of one group key are merged now, which wait and for what, and how many compactions are ahead.

1. A slot is *settled* when no two of its blocks can have the same series: a block alone is, and so are parts of one
   group where the bucket allows parts. Anything else in it is merged as a whole, once everything inside smaller slots
   is settled.
2. A slot is merged when it is over, and something that reaches its end has come (or one more range has passed). Blocks
   of level 1 that came late count for themselves: their slot waits until nothing followed them for the consistency
   delay, four times that at most.
3. A result has the range of its slot, so that the smaller slots in it are empty afterwards: every slot is merged once
   for the blocks there are, and planning comes to an end.
4. What a job has is left alone, and so is what would need its result. Late blocks in smaller slots go on meanwhile.

Each block is looked at once per range; slots are worked off from the smallest range up, so that the compactions that
only become possible by others are counted in the same pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from engine.core import ulids
from engine.core.errors import BadBlockName
from engine.lanes.tsdb.plan import words
from engine.lanes.tsdb.plan.model import (
    OUT_OF_ORDER_HINT,
    BlockState,
    IntervalBlock,
    IntervalGroup,
    SlotProgress,
    SlotState,
    Standing,
    TakenGroup,
)
from engine.lanes.tsdb.plan.partitions import are_disjoint, partition_count
from engine.lanes.tsdb.plan.policy import IntervalPolicy
from engine.lanes.tsdb.plan.slots import range_of, slot_start

DELAYS_MAX = 4
"""How many consistency delays a slot waits at most, counted from its first late block."""

_MERGE_ORDER = attrgetter("min_time_ms", "max_time_ms", "ulid")


class _Slot:
    """A slot while it is worked on; ``merged`` results of groups will be in it besides ``blocks``.

    ``is_pending``: compactions inside it, or its own, are to be done first. ``is_held``: and it is not known when.
    """

    __slots__ = ("blocks", "is_held", "is_pending", "merged", "taken")

    def __init__(self) -> None:
        self.blocks: list[IntervalBlock] = []
        self.merged = 0
        self.is_pending = False
        self.is_held = False
        self.taken: list[TakenGroup] | None = None


class KeyPlan:
    """The plan for the blocks of one group key; everything is filled in by the constructor."""

    def __init__(
        self,
        tenant: str,
        group_key: str,
        blocks: Sequence[IntervalBlock],
        taken: Iterable[TakenGroup],
        policy: IntervalPolicy,
        now_ms: int,
    ) -> None:
        self.groups: list[IntervalGroup] = []
        self.standings: dict[str, Standing] = {}
        self.slots: list[SlotProgress] = []
        self.look_again_ms: int | None = None
        self._tenant, self._group_key = tenant, group_key
        self._policy, self._now_ms = policy, now_ms
        self._levels: list[dict[int, _Slot]] = [{} for _ in policy.ranges_ms]
        ends = [block.max_time_ms for block in blocks]
        for group in taken:
            self._place_taken(group)
            ends.append(group.start_ms + group.range_ms)
        self._newest_end_ms = max(ends, default=now_ms)
        self._over_ms = min(now_ms, self._newest_end_ms)
        self._is_any_young = self._place(blocks)
        for position in range(len(policy.ranges_ms)):
            self._work_off(position)

    def _place(self, blocks: Iterable[IntervalBlock]) -> bool:
        """Put every block into its slot; say whether one came so lately that others may follow it."""
        ranges_ms, levels = self._policy.ranges_ms, self._levels
        smallest_ms, smallest = ranges_ms[0], self._levels[0]
        young_ms = self._now_ms - self._policy.consistency_delay_ms
        is_any_young = False
        for block in blocks:
            if block.level == 1:
                uploaded_ms = block.uploaded_at_ms
                if uploaded_ms is None or uploaded_ms > young_ms:
                    is_any_young = True
            start_ms = block.min_time_ms // smallest_ms * smallest_ms
            if block.max_time_ms <= start_ms + smallest_ms and (block.time_range_ms is None or block.level == 1):
                slots = smallest  # what range_of would say
            else:
                position = range_of(block, ranges_ms)
                if position is None:
                    self.standings[block.ulid] = Standing(state=BlockState.FINAL, cause=words.MISFIT)
                    continue
                slots, range_ms = levels[position], ranges_ms[position]
                start_ms = block.min_time_ms // range_ms * range_ms
            slot = slots.get(start_ms)
            if slot is None:
                slot = slots[start_ms] = _Slot()
            slot.blocks.append(block)
        return is_any_young

    def _place_taken(self, group: TakenGroup) -> None:
        """Put a group that a job has where its result will be; a range that is no longer planned goes one up."""
        ranges_ms = self._policy.ranges_ms
        position = next((n for n, range_ms in enumerate(ranges_ms) if range_ms >= group.range_ms), len(ranges_ms) - 1)
        slot = self._levels[position].setdefault(slot_start(group.start_ms, ranges_ms[position]), _Slot())
        slot.merged += 1
        slot.is_pending = True
        slot.is_held = slot.is_held or group.state is SlotState.WAITING
        slot.taken = sorted([*(slot.taken or ()), group], key=_by_state)
        standing = Standing(
            state=BlockState.TAKEN,
            cause=words.IN_JOB,
            range_ms=group.range_ms,
            start_ms=group.start_ms,
            detail=group.why,
        )
        for ulid in group.ulids:
            self.standings[ulid] = standing

    def _work_off(self, position: int) -> None:
        """Decide about all slots of a range, and hand what comes of them to the next range."""
        range_ms = self._policy.ranges_ms[position]
        is_last = position + 1 == len(self._levels)
        above_ms = 0 if is_last else self._policy.ranges_ms[position + 1]
        above = {} if is_last else self._levels[position + 1]
        for start_ms, slot in self._levels[position].items():
            parent = None
            if not is_last:
                parent_ms = start_ms // above_ms * above_ms
                parent = above.get(parent_ms)
                if parent is None:
                    parent = above[parent_ms] = _Slot()
            if _is_settled(slot, allows_partitions=self._policy.allows_partitions):
                self._settle(range_ms, start_ms, slot, parent)
            else:
                self._merge(range_ms, start_ms, slot, parent)

    def _settle(self, range_ms: int, start_ms: int, slot: _Slot, parent: _Slot | None) -> None:
        """Hand a slot in which nothing is to be merged to the next range; without one its blocks are final."""
        end_ms = start_ms + range_ms
        is_over = end_ms <= self._over_ms or self._is_complete(end_ms, range_ms)
        blocks = slot.blocks
        if not is_over:
            self._say(blocks, BlockState.WAITING, words.NEIGHBOURS, range_ms, start_ms)
        elif parent is None and blocks:
            if slot.is_pending or slot.is_held:
                self._say(blocks, BlockState.WAITING, words.SMALLER_FIRST, range_ms, start_ms)
            else:
                self._say(blocks, BlockState.FINAL, words.ALONE, range_ms, start_ms)
        state, compactions = SlotState.DONE, 0
        if slot.taken:
            state, compactions = slot.taken[0].state, len(slot.taken)
        elif slot.is_pending or slot.is_held or not is_over:
            state = SlotState.WAITING
        self._note(range_ms, start_ms, state, len(blocks), 0, compactions)
        if parent is not None:
            parent.blocks += blocks
            parent.merged += slot.merged
            parent.is_pending = parent.is_pending or slot.is_pending
            parent.is_held = parent.is_held or slot.is_held

    def _merge(self, range_ms: int, start_ms: int, slot: _Slot, parent: _Slot | None) -> None:
        """Make a group of a slot, or say what it waits for."""
        blocks, compactions = slot.blocks, len(slot.taken) if slot.taken else 0
        cause, until_ms, detail = self._wait(range_ms, start_ms, slot)
        if until_ms is not None and (self.look_again_ms is None or until_ms < self.look_again_ms):
            self.look_again_ms = until_ms
        is_held = bool(cause) or slot.is_held
        if not is_held:
            compactions += 1
        if not cause and (slot.is_held or slot.is_pending):
            cause = words.SMALLER_FIRST
            if slot.taken:
                cause, detail = words.SLOT_TAKEN, slot.taken[0].why
        if cause:
            state = SlotState.TOO_LARGE if cause == words.TOO_LARGE else SlotState.WAITING
            state = slot.taken[0].state if slot.taken else state
            self._say(blocks, BlockState.WAITING, cause, range_ms, start_ms, until_ms=until_ms, detail=detail)
        else:
            state = SlotState.READY
            self._say(blocks, BlockState.GROUPED, words.IN_GROUP, range_ms, start_ms)
            self.groups.append(self._group(range_ms, start_ms, blocks))
        self._note(range_ms, start_ms, state, len(blocks), 0 if is_held else len(blocks), compactions)
        if parent is not None:
            parent.merged += 1
            parent.is_pending = True
            parent.is_held = parent.is_held or is_held

    def _group(self, range_ms: int, start_ms: int, blocks: list[IntervalBlock]) -> IntervalGroup:
        blocks.sort(key=_MERGE_ORDER)
        return IntervalGroup(
            tenant=self._tenant,
            group_key=self._group_key,
            range_ms=range_ms,
            start_ms=start_ms,
            blocks=tuple(blocks),
            partitions=partition_count(blocks, self._policy, range_ms),
        )

    def _wait(self, range_ms: int, start_ms: int, slot: _Slot) -> tuple[str, int | None, str]:
        """Return what keeps a slot from being merged though there is something to merge, until when, and what else."""
        end_ms = start_ms + range_ms
        if end_ms > self._over_ms:
            if end_ms > self._now_ms:
                return words.SLOT_OPEN, end_ms, ""
            if not self._is_complete(end_ms, range_ms):
                return words.INCOMPLETE, end_ms + range_ms, ""
        if self._is_any_young:
            until_ms, ulid = quiet_from(slot.blocks, self._policy.consistency_delay_ms, now_ms=self._now_ms)
            if until_ms > self._now_ms:
                return words.YOUNG, until_ms, ulid
        is_next = not (slot.is_pending or slot.is_held)
        if is_next and not self._policy.allows_partitions:
            count = partition_count(slot.blocks, self._policy, range_ms)
            if count > 1:
                return words.TOO_LARGE, None, words.too_large(count)
        return "", None, ""

    def _is_complete(self, end_ms: int, range_ms: int) -> bool:
        return end_ms <= self._over_ms or end_ms + range_ms <= self._now_ms

    def _say(
        self,
        blocks: Iterable[IntervalBlock],
        state: BlockState,
        cause: str,
        range_ms: int,
        start_ms: int,
        *,
        until_ms: int | None = None,
        detail: str = "",
    ) -> None:
        standing = Standing(
            state=state, cause=cause, range_ms=range_ms, start_ms=start_ms, until_ms=until_ms, detail=detail
        )
        if cause == words.NEIGHBOURS:  # the smallest interval that is not complete says most
            for block in blocks:
                self.standings.setdefault(block.ulid, standing)
            return
        for block in blocks:
            self.standings[block.ulid] = standing

    def _note(
        self, range_ms: int, start_ms: int, state: SlotState, blocks: int, waiting: int, compactions: int
    ) -> None:
        self.slots.append(
            SlotProgress(
                group_key=self._group_key,
                range_ms=range_ms,
                start_ms=start_ms,
                state=state,
                blocks=blocks,
                waiting=waiting,
                compactions=compactions,
            )
        )


def _by_state(group: TakenGroup) -> tuple[bool, bool, int]:
    return (group.state is not SlotState.RUNNING, group.state is not SlotState.READY, group.start_ms)


def _is_settled(slot: _Slot, *, allows_partitions: bool) -> bool:
    blocks, merged = slot.blocks, slot.merged
    if merged:
        return merged == 1 and not blocks
    count = len(blocks)
    if count < 2:
        return True
    if blocks[0].partitions == 1 or not allows_partitions:
        return False
    return are_disjoint([(block.partition, block.partitions) for block in blocks])


def quiet_from(blocks: Iterable[IntervalBlock], delay_ms: int, *, now_ms: int) -> tuple[int, str]:
    """Return from when on no more late blocks are expected beside these, and after which of them; (0, "") for none."""
    uploads = sorted(
        (uploaded_ms(block, now_ms), block.ulid)
        for block in blocks
        if block.level == 1 and OUT_OF_ORDER_HINT not in block.hints
    )
    if not uploads or not delay_ms:
        return 0, ""
    last_ms, ulid = uploads[-1]
    return min(last_ms + delay_ms, uploads[0][0] + DELAYS_MAX * delay_ms), ulid


def uploaded_ms(block: IntervalBlock, now_ms: int) -> int:
    """Return when a block came: its upload, else the time in its id; 0 if neither says a time that has been."""
    told_ms = block.uploaded_at_ms
    if told_ms is None:
        try:
            told_ms = ulids.time_ms(block.ulid)
        except BadBlockName:
            return 0
    return told_ms if told_ms <= now_ms else 0
