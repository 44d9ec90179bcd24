"""Return the blocks of parked jobs to their queues, where they are planned again, with others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from engine.formats.profile_block.model import COMPACTION_LEVEL_MAX
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.planning.lane_write import queue_changes
from webadmin.lanes.profiles.planning.level_queues import intern_queues
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.models import Job
from webadmin.schedule.services.operation import Operation


def return_blocks(run: Operation, jobs: Sequence[Job]) -> None:
    """Queue the blocks of these parked jobs, in an operation that has written its entry."""
    # A final block is in a job only to be rewritten without deleted data; it has no queue.
    rewrites = [job for job in jobs if job.level >= COMPACTION_LEVEL_MAX]
    Block.objects.filter(owner_job__in=rewrites, state=BlockState.OWNED).update(state=BlockState.FINAL, owner_job=None)
    merges = [job for job in jobs if job not in rewrites]
    for job in merges:
        _queue_again(run, job)


def _queue_again(run: Operation, job: Job) -> None:
    """Queue the job's blocks, each in its own shard: those of a consolidation come from several."""
    owned = Block.objects.filter(owner_job=job, state=BlockState.OWNED)
    sizes: defaultdict[int, list[int]] = defaultdict(list)
    for shard, size in owned.values_list("shard", "size_bytes"):
        sizes[shard].append(size)
    changes = queue_changes(run)
    queues = intern_queues((job.lane, job.tenant, shard, job.level) for shard in sizes)
    for shard in sorted(sizes):
        queue_id = queues[job.lane, job.tenant, shard, job.level]
        owned.filter(shard=shard).update(state=BlockState.QUEUED, queue_id=queue_id, owner_job=None)
        changes.add(queue_id, len(sizes[shard]), sum(sizes[shard]))
