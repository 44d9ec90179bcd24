"""Level queues in memory, sorted by the time at which they are due; sums are updated incrementally."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence

from engine.lanes.profiles.plan.levels import exceeds_a_job, ready_at_ms
from engine.lanes.profiles.plan.model import LevelPolicy
from engine.simulation.memory.rows import MemoryBlock, MemoryJob, MemoryQueue, TenantRow


class QueueBook:
    """All level queues and their tenants. Every change of a queue ends with ``settle``."""

    def __init__(self, policies: Mapping[int, LevelPolicy]) -> None:
        self.policies = policies
        self.by_key: dict[tuple[str, int, int], MemoryQueue] = {}
        self.by_id: dict[int, MemoryQueue] = {}
        self.tenants: dict[str, TenantRow] = {}
        self.waiting: list[tuple[int, str]] = []
        self.block_count = 0
        self.has_caps = False
        self._least_served: list[tuple[int, str]] = []

    def queue(self, tenant: str, shard: int, level: int) -> MemoryQueue:
        """Return a queue; create it if it does not exist."""
        found = self.by_key.get((tenant, shard, level))
        if found is None:
            self.tenant(tenant)
            found = MemoryQueue(len(self.by_id) + 1, tenant, shard, level, self.policies[level])
            self.by_key[tenant, shard, level] = self.by_id[found.id] = found
        return found

    def tenant(self, name: str) -> TenantRow:
        """Return a tenant's row; create it if it does not exist."""
        found = self.tenants.get(name)
        if found is None:
            found = self.tenants[name] = TenantRow(name)
            insort(self._least_served, (0, name))
        return found

    def charge(self, name: str, virtual_time: int) -> None:
        """Set the virtual time of a tenant."""
        row = self.tenant(name)
        del self._least_served[bisect_left(self._least_served, (row.virtual_time, name))]
        row.virtual_time = virtual_time
        insort(self._least_served, (virtual_time, name))

    def put(self, block: MemoryBlock) -> MemoryQueue:
        """Add a block to its queue."""
        queue = block.queue = self.queue(block.tenant, block.shard, block.level)
        entry = (block.view.arrived_at_ms, block.ulid, block)
        if not queue.entries or queue.entries[-1] < entry:
            queue.entries.append(entry)
        else:
            insort(queue.entries, entry)
        queue.byte_count += block.size_bytes
        self.block_count += 1
        return queue

    def take(self, queue: MemoryQueue, blocks: Sequence[MemoryBlock]) -> None:
        """Remove blocks from their queue."""
        entries = queue.entries
        first = bisect_left(entries, (blocks[0].view.arrived_at_ms, blocks[0].ulid))
        run = entries[first : first + len(blocks)]
        if [entry[2] for entry in run] == list(blocks):
            del entries[first : first + len(blocks)]
        else:
            for block in blocks:
                del entries[bisect_left(entries, (block.view.arrived_at_ms, block.ulid))]
        for block in blocks:
            block.queue = None
            queue.byte_count -= block.size_bytes
        self.block_count -= len(blocks)

    def settle(self, queue: MemoryQueue) -> None:
        """Update the queue's position among those of its tenant."""
        place = place_ms(queue)
        if place == queue.place_ms:
            return
        order = self.tenants[queue.tenant].queues
        if queue.place_ms is not None:
            del order[bisect_left(order, (queue.place_ms, queue.id))]
        if place is not None:
            insort(order, (place, queue.id))
        queue.place_ms = place

    def line_up(self, job: MemoryJob) -> None:
        """Add a job to the waiting jobs."""
        insort(self.waiting, (job.priority_ms, job.name))

    def step_out(self, job: MemoryJob) -> None:
        """Remove a job from the waiting jobs."""
        del self.waiting[bisect_left(self.waiting, (job.priority_ms, job.name))]

    def needy_tenants(self, now_ms: int, count: int) -> Iterator[TenantRow]:
        """Yield up to ``count`` tenants with a ready queue, smallest virtual time first."""
        for _, name in self._least_served:
            if count == 0:
                return
            row = self.tenants[name]
            if row.queues and row.queues[0][0] <= now_ms:
                yield row
                count -= 1

    def ready_queues(self, row: TenantRow, now_ms: int, count: int) -> Iterator[MemoryQueue]:
        """Yield up to ``count`` ready queues of a tenant, sorted by position."""
        for place, queue_id in row.queues[:count]:
            if place > now_ms:
                return
            yield self.by_id[queue_id]


def place_ms(queue: MemoryQueue) -> int | None:
    """Return the later of the queue's ready time and the time it was last served; None if it is empty."""
    ready = ready_ms(queue)
    return None if ready is None else max(ready, queue.served_at_ms)


def ready_ms(queue: MemoryQueue) -> int | None:
    """Return the time at which a job can be planned from the queue's first blocks; None if it is empty."""
    entries, policy = queue.entries, queue.policy
    if not entries:
        return None
    return ready_at_ms(
        policy,
        oldest_ms=entries[0][0],
        filling_ms=entries[policy.blocks_max - 1][0] if len(entries) >= policy.blocks_max else None,
        is_heavy=exceeds_a_job(policy, block_count=len(entries), byte_count=queue.byte_count),
        newest_ms=entries[-1][0],
    )
