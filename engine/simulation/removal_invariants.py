"""Invariants of what is let go on purpose (21), and of orders about one tenant (27)."""

from __future__ import annotations

from typing import Any

from engine.simulation.audit import Audit, InvariantBroken, Step
from engine.simulation.memory_removal import GRACE_MS, PARTITION_MS, partition_ms
from engine.simulation.memory_schedule import MemorySchedule
from engine.simulation.rows import LIVE_BLOCKS, MemoryBlock


def invariant_21_retention_strictness(audit: Audit, step: Step) -> None:
    """Only what is wholly older than its tenant keeps data goes by retention, and only of the part that was judged.

    What goes without being too old must have been hidden by delete requests, every part of it (invariant 4).
    """
    order = step.order
    for removal in step.removals:
        block = removal.block
        if order is None or order.part is None:
            if any(audit.is_visible(block, share) for share in removal.shares):
                raise InvariantBroken(4, f"data of block {block.ulid} is gone, which nobody wanted gone")
            continue
        part, policy = order.part, order.policy
        assert policy is not None, "retention has a policy"
        keep_ms = policy.tenants.get(part.tenant, policy.default_ms)
        if keep_ms <= 0 or part.tenant in policy.held:
            raise InvariantBroken(21, f"tenant {part.tenant} keeps its data, but block {block.ulid} lost some")
        marker_ms = order.at_ms - keep_ms
        place = (partition_ms(block), block.shard, {share.tenant for share in removal.shares})
        if place != (part.partition_start_ms, part.shard, {part.tenant}):
            raise InvariantBroken(21, f"block {block.ulid} is not of the part that was too old")
        if partition_ms(block) + PARTITION_MS + GRACE_MS > marker_ms:
            raise InvariantBroken(21, f"the partition of block {block.ulid} was not over for long enough")
        if newest := [other for other in _of_part(audit, block, part.tenant) if other.max_time_ms >= marker_ms]:
            raise InvariantBroken(21, f"block {block.ulid} went, but {newest[0].ulid} of its part is not too old")


def invariant_27_tenant_isolation(audit: Audit, step: Step) -> None:
    """An order about one tenant leaves every row of all others as it was; of segments, their parts."""
    order = step.order
    if order is None or order.tenant is None:
        return
    changed = [table for table in order.before if order.before[table] != order.after[table]]
    if changed:
        raise InvariantBroken(27, f"an order about {order.tenant!r} has changed {changed} of other tenants")


def rows_of_others(schedule: MemorySchedule, tenant: str) -> dict[str, Any]:
    """Return all rows but those of a tenant, and but the jobs over segments, which may lose that tenant's data."""
    blocks = [block for block in schedule.blocks.values() if block.tenant != tenant]
    theirs = {block.ulid: [share for share in block.shares if share.tenant != tenant] for block in blocks}
    return {
        "data": {ulid: shares for ulid, shares in theirs.items() if shares},
        "blocks": {block.ulid: (block.state, block.masks_applied) for block in blocks if theirs[block.ulid]},
        "jobs": {
            name: (job.state, job.token, job.failures, job.parked_kind, [block.ulid for block in job.sources])
            for name, job in schedule.jobs.items()
            if job.tenant not in (tenant, "")
        },
        "queues": {
            queue.id: ([entry[1] for entry in queue.entries], queue.place_ms)
            for queue in schedule.queues.by_id.values()
            if queue.tenant not in (tenant, "")
        },
        "tenants": {
            name: (row.weight, row.virtual_time, row.running_count, row.running_max)
            for name, row in schedule.queues.tenants.items()
            if name != tenant
        },
        "tombstones": {block.ulid for block in blocks if theirs[block.ulid] and block.ulid in schedule.tombstones},
        "ledger": dict(schedule.ledger),
        "limits": schedule.limits,
        "paused": [scope for scope in schedule.paused if scope.value != tenant],
    }


def _of_part(audit: Audit, block: MemoryBlock, tenant: str) -> list[MemoryBlock]:
    """Return what the tenant has, or had before this step, in the part of the index that a block is of."""
    place = (partition_ms(block), block.shard, block.tenant)
    return [
        other
        for other in audit.schedule.blocks.values()
        if (other.state in LIVE_BLOCKS or audit.blocks.get(other.ulid) in LIVE_BLOCKS)
        and (partition_ms(other), other.shard, other.tenant) == place
        and any(share.tenant == tenant for share in other.shares)
    ]
