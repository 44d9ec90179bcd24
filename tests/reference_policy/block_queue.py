"""The block queue of the ``reference`` policy: blocks gather in staged batches that only arrivals flush.

Kept as the system that inspired the lane has it, its weaknesses included, so that the two policies can be compared; the
scenarios in ``tests/scenarios/queue`` cite what its own tests pin.

1. A block's position in its batch never changes: a removed block leaves a hole.
2. Flushed batches of a level form one list by the time of their flush, over all keys.
3. A batch is flushed by an arrival only: the one that fills it, or finds it too old, or any at the level that happens
   to look at its key (each arrival looks at the one key of its level that was looked at longest ago).
4. Reading changes nothing; pushing the same rows in the same order gives the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from engine.lanes.profiles.plan.model import LevelPolicy, QueuedBlock, QueueKey


@dataclass(slots=True, eq=False)
class Batch:
    """Blocks that arrived together; None is a hole. ``created_at_ms`` is 0 while nothing has come into it."""

    key: QueueKey
    created_at_ms: int = 0
    slots: list[QueuedBlock | None] = field(default_factory=list)
    size: int = 0

    def blocks(self) -> list[QueuedBlock]:
        """Return the blocks that are still in it, in arrival order."""
        return [block for block in self.slots if block is not None]


@dataclass(slots=True)
class _KeyQueue:
    """One key: its staged batch, its flushed ones, where each block is, and when it was looked at last."""

    key: QueueKey
    staged: Batch
    looked_at_ms: int
    flushed: list[Batch] = field(default_factory=list)
    places: dict[str, tuple[Batch, int]] = field(default_factory=dict)
    rejected: int = 0
    missed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStatistics:
    """What a level holds."""

    blocks: int
    queues: int
    batches: int


class ReferenceQueue:
    """Blocks that no job owns, by key. ``policies`` says by level when a batch is complete or too old."""

    def __init__(self, policies: Mapping[int, LevelPolicy]) -> None:
        self._policies = policies
        self._keys: dict[QueueKey, _KeyQueue] = {}
        self._flushed: dict[int, list[Batch]] = {level: [] for level in policies}
        self.rejected = 0
        self.missed = 0

    def push(self, key: QueueKey, block: QueuedBlock) -> bool:
        """Queue a block that arrived at ``block.arrived_at_ms``; False for a level that is never merged further, or an
        id that the key knows already."""
        level, now_ms = key[3], block.arrived_at_ms
        policy = self._policies.get(level)
        if policy is None:
            return False
        queue = self._keys.get(key)
        if queue is None:
            queue = self._keys[key] = _KeyQueue(key=key, staged=Batch(key), looked_at_ms=now_ms)
        if block.ulid in queue.places:
            queue.rejected += 1
            self.rejected += 1
            return False
        staged = queue.staged
        if staged.size == 0:
            staged.created_at_ms = now_ms
        queue.places[block.ulid] = (staged, len(staged.slots))
        staged.slots.append(block)
        staged.size += 1
        queue.looked_at_ms = now_ms
        if staged.size >= policy.blocks_max or now_ms - staged.created_at_ms > policy.age_ms:
            self._flush(queue)
        self._look_at_oldest(level, policy, now_ms)
        return True

    def delete(self, key: QueueKey, ulid: str) -> bool:
        """Take a block out; False (and counted) if it is not there."""
        queue = self._keys.get(key)
        place = queue.places.pop(ulid, None) if queue else None
        if queue is None or place is None:
            self.missed += 1
            return False
        batch, position = place
        batch.slots[position] = None
        batch.size -= 1
        if batch.size == 0 and batch is not queue.staged:
            queue.flushed.remove(batch)
            self._flushed[key[3]].remove(batch)
        if not queue.places:
            del self._keys[key]
        return True

    def batches(self, level: int) -> tuple[Batch, ...]:
        """Return the flushed batches of a level in the order of their flush."""
        return tuple(self._flushed[level])

    def batches_of(self, key: QueueKey) -> tuple[Batch, ...]:
        """Return the flushed batches of a key in the order of their flush."""
        queue = self._keys.get(key)
        return tuple(queue.flushed) if queue else ()

    def staged(self, key: QueueKey) -> list[QueuedBlock]:
        """Return the blocks of a key that the planner cannot see."""
        queue = self._keys.get(key)
        return queue.staged.blocks() if queue else []

    def queue_keys(self) -> Iterator[QueueKey]:
        """Return the keys that have blocks, in the order of their first arrival."""
        return iter(tuple(self._keys))

    def levels(self) -> Iterable[int]:
        """Return the levels that are queued at all, the lowest first."""
        return sorted(self._policies)

    def statistics(self, level: int) -> LevelStatistics:
        """Return how much is queued at a level."""
        queues = [queue for key, queue in self._keys.items() if key[3] == level]
        return LevelStatistics(
            blocks=sum(len(queue.places) for queue in queues), queues=len(queues), batches=len(self._flushed[level])
        )

    def check(self) -> None:
        """Walk the rules above; AssertionError names the first that is broken."""
        for key, queue in self._keys.items():
            assert queue.places, f"{key}: an empty key is forgotten"
            for ulid, (batch, position) in queue.places.items():
                found = batch.slots[position]
                assert found is not None, f"{key}: {ulid} is listed but not there"
                assert found.ulid == ulid, f"{key}: {ulid} is not where it should be"
                assert batch is queue.staged or batch in queue.flushed, f"{key}: {ulid} is in a batch that is gone"
            held = [queue.staged, *queue.flushed]
            assert sum(batch.size for batch in held) == len(queue.places), f"{key}: sizes do not add up"
            assert all(batch.size == len(batch.blocks()) for batch in held), f"{key}: a batch miscounts"
        for level, flushed in self._flushed.items():
            local = [id(batch) for key, queue in self._keys.items() if key[3] == level for batch in queue.flushed]
            assert sorted(local) == sorted(map(id, flushed)), f"level {level}: the lists differ"
            assert all(batch.size for batch in flushed), f"level {level}: an empty batch is still listed"

    def _flush(self, queue: _KeyQueue) -> None:
        batch = queue.staged
        queue.flushed.append(batch)
        self._flushed[queue.key[3]].append(batch)
        queue.staged = Batch(queue.key)

    def _look_at_oldest(self, level: int, policy: LevelPolicy, now_ms: int) -> None:
        """Flush the staged batch of the key that was looked at longest ago, if it is too old.

        An empty staged batch looks expired, since its creation time is 0; it uses up the one look all the same.
        """
        queues = [queue for key, queue in self._keys.items() if key[3] == level]
        oldest = min(queues, key=lambda queue: queue.looked_at_ms)
        if oldest.staged.size and now_ms - oldest.staged.created_at_ms > policy.age_ms:
            self._flush(oldest)
        oldest.looked_at_ms = now_ms
