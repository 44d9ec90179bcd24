"""Invariants of the removal of data (21) and of actions on one tenant (27)."""

from __future__ import annotations

from typing import Any

from engine.simulation.checks.audit import Audit, InvariantBroken, Step
from engine.simulation.memory.removal import GRACE_MS, PARTITION_MS, partition_ms
from engine.simulation.memory.rows import LIVE_BLOCKS, MemoryBlock
from engine.simulation.memory.schedule import MemorySchedule


def invariant_21_retention_strictness(audit: Audit, step: Step) -> None:
    """Retention drops only data that is completely past its tenant's retention, and only of the planned slice.

    All other removed data must have been hidden by delete requests completely (invariant 4).
    """
    action = step.action
    for removal in step.removals:
        block = removal.block
        if action is None or action.part is None:
            if any(audit.is_visible(block, share) for share in removal.shares):
                raise InvariantBroken(
                    4, f"data of block {block.ulid} was removed without retention or a delete request"
                )
            continue
        part, policy = action.part, action.policy
        assert policy is not None, "retention has a policy"
        keep_ms = policy.tenants.get(part.tenant, policy.default_ms)
        if keep_ms <= 0 or part.tenant in policy.held:
            raise InvariantBroken(21, f"tenant {part.tenant} keeps its data, but block {block.ulid} lost some")
        marker_ms = action.at_ms - keep_ms
        place = (partition_ms(block), block.shard, {share.tenant for share in removal.shares})
        if place != (part.partition_start_ms, part.shard, {part.tenant}):
            raise InvariantBroken(21, f"block {block.ulid} is not of the part that was too old")
        if partition_ms(block) + PARTITION_MS + GRACE_MS > marker_ms:
            raise InvariantBroken(21, f"the partition of block {block.ulid} was not over for long enough")
        if newest := [other for other in _of_part(audit, block, part.tenant) if other.max_time_ms >= marker_ms]:
            raise InvariantBroken(21, f"block {block.ulid} went, but {newest[0].ulid} of its part is not too old")


def invariant_27_tenant_isolation(audit: Audit, step: Step) -> None:
    """An action on one tenant leaves all rows of others unchanged, and their parts of segments."""
    action = step.action
    if action is None or action.tenant is None:
        return
    changed = [table for table in action.before if action.before[table] != action.after[table]]
    if changed:
        raise InvariantBroken(27, f"an action on {action.tenant!r} has changed {changed} of other tenants")


def rows_of_others(schedule: MemorySchedule, tenant: str) -> dict[str, Any]:
    """Return all rows except those of a tenant and the jobs over segments, which may lose that tenant's data."""
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
    """Return the tenant's blocks, now or before this step, in the slice of a block."""
    place = (partition_ms(block), block.shard, block.tenant)
    return [
        other
        for other in audit.schedule.blocks.values()
        if (other.state in LIVE_BLOCKS or audit.blocks.get(other.ulid) in LIVE_BLOCKS)
        and (partition_ms(other), other.shard, other.tenant) == place
        and any(share.tenant == tenant for share in other.shares)
    ]
