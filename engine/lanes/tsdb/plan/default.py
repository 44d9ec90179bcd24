"""The default rules: which slots of one group key are merged now, which wait, and how many compactions remain.

1. A slot is *settled* when no two of its blocks can share a series: it has one block, or partitions of one group where
   the bucket allows partitions. Any other slot is merged as a whole once all smaller slots inside it are settled.
2. A slot is merged when it has ended and a block that reaches its end has been uploaded (or one more range has passed).
   After late level-1 blocks it waits for the consistency delay since the last one, at most four times the delay.
3. A result has the range of its slot and empties the smaller slots inside it. Every slot is therefore merged once for
   the existing blocks, and planning terminates.
4. Blocks in jobs are left alone, and so are slots that need their results. Late blocks in smaller slots are still
   planned.

Each block is visited once per range. Slots are processed from the smallest range up, so compactions that depend on
others are counted in the same pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from engine.core import ulids
from engine.core.errors import BadBlockName
from engine.lanes.tsdb.plan import reasons
from engine.lanes.tsdb.plan.model import (
    OUT_OF_ORDER_HINT,
    BlockState,
    BlockStatus,
    IntervalBlock,
    IntervalGroup,
    SlotProgress,
    SlotState,
    TakenGroup,
)
from engine.lanes.tsdb.plan.partitions import are_disjoint, partition_count
from engine.lanes.tsdb.plan.policy import IntervalPolicy
from engine.lanes.tsdb.plan.slots import range_of, slot_start

DELAYS_MAX = 4
"""Maximum wait of a slot, in consistency delays after its first late block."""

_MERGE_ORDER = attrgetter("min_time_ms", "max_time_ms", "ulid")


class _Slot:
    """A slot during planning; ``merged`` counts results of groups that will be in it besides ``blocks``.

    ``is_pending``: compactions inside it, or its own, must run first. ``is_held``: it is unknown when they run.
    """

    __slots__ = ("blocks", "is_held", "is_pending", "merged", "taken")

    def __init__(self) -> None:
        self.blocks: list[IntervalBlock] = []
        self.merged = 0
        self.is_pending = False
        self.is_held = False
        self.taken: list[TakenGroup] | None = None


class KeyPlan:
    """The plan for the blocks of one group key, computed by the constructor."""

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
        self.statuses: dict[str, BlockStatus] = {}
        self.slots: list[SlotProgress] = []
        self.recheck_ms: int | None = None
        self._tenant, self._group_key = tenant, group_key
        self._policy, self._now_ms = policy, now_ms
        self._levels: list[dict[int, _Slot]] = [{} for _ in policy.ranges_ms]
        ends = [block.max_time_ms for block in blocks]
        for group in taken:
            self._place_taken(group)
            ends.append(group.start_ms + group.range_ms)
        self._newest_end_ms = max(ends, default=now_ms)
        self._over_ms = min(now_ms, self._newest_end_ms)
        self._has_young_block = self._place(blocks)
        for position in range(len(policy.ranges_ms)):
            self._plan_range(position)

    def _place(self, blocks: Iterable[IntervalBlock]) -> bool:
        """Assign every block to its slot; return whether a level-1 block is younger than the consistency delay."""
        ranges_ms, levels = self._policy.ranges_ms, self._levels
        smallest_ms, smallest = ranges_ms[0], self._levels[0]
        young_ms = self._now_ms - self._policy.consistency_delay_ms
        has_young_block = False
        for block in blocks:
            if block.level == 1:
                uploaded_ms = block.uploaded_at_ms
                if uploaded_ms is None or uploaded_ms > young_ms:
                    has_young_block = True
            start_ms = block.min_time_ms // smallest_ms * smallest_ms
            if block.max_time_ms <= start_ms + smallest_ms and (block.time_range_ms is None or block.level == 1):
                slots = smallest  # same result as range_of
            else:
                position = range_of(block, ranges_ms)
                if position is None:
                    self.statuses[block.ulid] = BlockStatus(state=BlockState.FINAL, cause=reasons.MISFIT)
                    continue
                slots, range_ms = levels[position], ranges_ms[position]
                start_ms = block.min_time_ms // range_ms * range_ms
            slot = slots.get(start_ms)
            if slot is None:
                slot = slots[start_ms] = _Slot()
            slot.blocks.append(block)
        return has_young_block

    def _place_taken(self, group: TakenGroup) -> None:
        """Place a group in a job where its result will be; for a range no longer planned, in the next larger one."""
        ranges_ms = self._policy.ranges_ms
        position = next((n for n, range_ms in enumerate(ranges_ms) if range_ms >= group.range_ms), len(ranges_ms) - 1)
        slot = self._levels[position].setdefault(slot_start(group.start_ms, ranges_ms[position]), _Slot())
        slot.merged += 1
        slot.is_pending = True
        slot.is_held = slot.is_held or group.state is SlotState.WAITING
        slot.taken = sorted([*(slot.taken or ()), group], key=_by_state)
        status = BlockStatus(
            state=BlockState.TAKEN,
            cause=reasons.IN_JOB,
            range_ms=group.range_ms,
            start_ms=group.start_ms,
            detail=group.why,
        )
        for ulid in group.ulids:
            self.statuses[ulid] = status

    def _plan_range(self, position: int) -> None:
        """Decide about all slots of a range, and pass the outcome on to the next range."""
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
        """Pass a settled slot on to the next range; without one its blocks are final."""
        end_ms = start_ms + range_ms
        is_over = end_ms <= self._over_ms or self._is_complete(end_ms, range_ms)
        blocks = slot.blocks
        if not is_over:
            self._set_status(blocks, BlockState.WAITING, reasons.NEIGHBOURS, range_ms, start_ms)
        elif parent is None and blocks:
            if slot.is_pending or slot.is_held:
                self._set_status(blocks, BlockState.WAITING, reasons.SMALLER_FIRST, range_ms, start_ms)
            else:
                self._set_status(blocks, BlockState.FINAL, reasons.ALONE, range_ms, start_ms)
        state, compactions = SlotState.DONE, 0
        if slot.taken:
            state, compactions = slot.taken[0].state, len(slot.taken)
        elif slot.is_pending or slot.is_held or not is_over:
            state = SlotState.WAITING
        self._add_slot(range_ms, start_ms, state, len(blocks), 0, compactions)
        if parent is not None:
            parent.blocks += blocks
            parent.merged += slot.merged
            parent.is_pending = parent.is_pending or slot.is_pending
            parent.is_held = parent.is_held or slot.is_held

    def _merge(self, range_ms: int, start_ms: int, slot: _Slot, parent: _Slot | None) -> None:
        """Create a group from a slot, or record what it waits for."""
        blocks, compactions = slot.blocks, len(slot.taken) if slot.taken else 0
        cause, until_ms, detail = self._wait(range_ms, start_ms, slot)
        if until_ms is not None and (self.recheck_ms is None or until_ms < self.recheck_ms):
            self.recheck_ms = until_ms
        is_held = bool(cause) or slot.is_held
        if not is_held:
            compactions += 1
        if not cause and (slot.is_held or slot.is_pending):
            cause = reasons.SMALLER_FIRST
            if slot.taken:
                cause, detail = reasons.SLOT_TAKEN, slot.taken[0].why
        if cause:
            state = SlotState.TOO_LARGE if cause == reasons.TOO_LARGE else SlotState.WAITING
            state = slot.taken[0].state if slot.taken else state
            self._set_status(blocks, BlockState.WAITING, cause, range_ms, start_ms, until_ms=until_ms, detail=detail)
        else:
            state = SlotState.READY
            self._set_status(blocks, BlockState.GROUPED, reasons.IN_GROUP, range_ms, start_ms)
            self.groups.append(self._group(range_ms, start_ms, blocks))
        self._add_slot(range_ms, start_ms, state, len(blocks), 0 if is_held else len(blocks), compactions)
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
        """Return why an unsettled slot must wait (cause, until when in ms, detail); "" if it need not."""
        end_ms = start_ms + range_ms
        if end_ms > self._over_ms:
            if end_ms > self._now_ms:
                return reasons.SLOT_OPEN, end_ms, ""
            if not self._is_complete(end_ms, range_ms):
                return reasons.INCOMPLETE, end_ms + range_ms, ""
        if self._has_young_block:
            until_ms, ulid = quiet_from(slot.blocks, self._policy.consistency_delay_ms, now_ms=self._now_ms)
            if until_ms > self._now_ms:
                return reasons.YOUNG, until_ms, ulid
        is_next = not (slot.is_pending or slot.is_held)
        if is_next and not self._policy.allows_partitions:
            count = partition_count(slot.blocks, self._policy, range_ms)
            if count > 1:
                return reasons.TOO_LARGE, None, reasons.too_large_reason(count)
        return "", None, ""

    def _is_complete(self, end_ms: int, range_ms: int) -> bool:
        return end_ms <= self._over_ms or end_ms + range_ms <= self._now_ms

    def _set_status(
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
        status = BlockStatus(
            state=state, cause=cause, range_ms=range_ms, start_ms=start_ms, until_ms=until_ms, detail=detail
        )
        if cause == reasons.NEIGHBOURS:  # The smallest incomplete interval is the most specific reason.
            for block in blocks:
                self.statuses.setdefault(block.ulid, status)
            return
        for block in blocks:
            self.statuses[block.ulid] = status

    def _add_slot(
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
    """Return when no more late blocks are expected beside these, and the last late block; (0, "") if there is none."""
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
    """Return the upload time of a block, else the time in its id; 0 if neither is a past time."""
    time_ms = block.uploaded_at_ms
    if time_ms is None:
        try:
            time_ms = ulids.time_ms(block.ulid)
        except BadBlockName:
            return 0
    return time_ms if time_ms <= now_ms else 0
