"""Remove blocks, or single tenants' datasets of segments, from the index; in a transaction that holds the head.

Workers are not affected: sources of a leased job are kept until it ends, and its results are removed later. A waiting
or parked job loses the source, and ends with its last one. Only blocks named by id are removed, and each removed block
gets one tombstone, which names its object.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.formats.profile_block.container.metadata import decode_metadata, encode_metadata
from engine.formats.profile_block.model import DATASET_PROFILES
from engine.schedule.model import HOLDING_STATES, LIVE_STATES, JobState
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.models import Block, Dataset, RemovalCause, Tombstone
from webadmin.lanes.profiles.planning.lane_write import queue_changes
from webadmin.lanes.profiles.planning.level_queues import QueueChanges
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import JobPin
from webadmin.schedule.queries import limits_now
from webadmin.schedule.services.operation import Operation


@dataclass(slots=True, kw_only=True)
class Removal:
    """A removal in progress: its command and its results. ``ended_jobs`` no longer count as live."""

    cause: RemovalCause
    command_index: int
    now_ms: int
    eligible_at_ms: int
    queue_changes: QueueChanges = field(default_factory=QueueChanges)
    dropped: list[str] = field(default_factory=list)
    dropped_bytes: int = 0
    trimmed: list[str] = field(default_factory=list)
    ended_jobs: int = 0


def start_removal(
    run: Operation, context: ActionContext, cause: RemovalCause, action: str, *, target: str, detail: dict[str, Any]
) -> Removal:
    """Write the log entry of a removal and return the argument of ``drop_blocks`` and ``trim_segments``."""
    index = run.write(action, context, target=target, detail=detail)
    delay_ms = limits_now(run.time.now_ms).cleanup_delay_seconds * 1000
    return Removal(
        cause=cause,
        command_index=index,
        now_ms=run.time.now_ms,
        eligible_at_ms=run.time.now_ms + delay_ms,
        queue_changes=queue_changes(run),
    )


def finish_removal(run: Operation, removal: Removal) -> None:
    """Count the jobs that ended with their last source."""
    run.live_jobs -= removal.ended_jobs


def removable(block_ids: Collection[int]) -> list[Block]:
    """Return the blocks that are live and not owned by a leased job."""
    blocks = Block.objects.live().filter(id__in=block_ids).select_related("owner_job").order_by("id")
    return [block for block in blocks if block.owner_job is None or block.owner_job.state != JobState.LEASED]


def named(blocks: Sequence[Block]) -> list[tuple[int, str]]:
    """Return the shard and id of each block, as the log names dropped blocks."""
    return [(block.shard, block.ulid) for block in blocks]


def emptied(segments: Sequence[Block], gone: Mapping[int, Collection[int]]) -> list[Block]:
    """Return the segments that would be removed with their last dataset."""
    rows = Dataset.objects.filter(block__in=segments, format=DATASET_PROFILES)
    kept = {
        block_id for block_id, position in rows.values_list("block_id", "position") if position not in gone[block_id]
    }
    return [segment for segment in segments if segment.id not in kept]


def drop_blocks(removal: Removal, blocks: Sequence[Block]) -> None:
    """Remove these removable blocks from the index, in any queue or job."""
    for block in blocks:
        if block.state == BlockState.QUEUED and block.queue_id is not None:
            removal.queue_changes.add(block.queue_id, -1, -block.size_bytes)
    ids = [block.id for block in blocks]
    Block.objects.filter(id__in=ids).update(
        state=BlockState.DROPPED, queue=None, parked_reason="", removed_command_index=removal.command_index
    )
    _shrink_jobs(removal, [block for block in blocks if block.state == BlockState.OWNED])
    Tombstone.objects.bulk_create(
        Tombstone(
            block_id=block_id,
            cause=removal.cause,
            command_index=removal.command_index,
            created_at_ms=removal.now_ms,
            eligible_at_ms=removal.eligible_at_ms,
        )
        for block_id in ids
    )
    removal.dropped += [block.ulid for block in blocks]
    removal.dropped_bytes += sum(block.size_bytes for block in blocks)


def trim_segments(removal: Removal, segments: Sequence[Block], gone: Mapping[int, Collection[int]]) -> None:
    """Remove datasets (by row id of the segment: their positions) from removable segments.

    Those that are ``emptied`` are removed. Entries in the metadata keep their positions, without name and labels:
    merges skip them.
    """
    empty = emptied(segments, gone)
    for segment in segments:
        Dataset.objects.filter(block=segment, position__in=gone[segment.id]).delete()
        if segment in empty:
            continue
        left = Dataset.objects.filter(block=segment).count()
        metadata = without_datasets(bytes(segment.metadata), gone[segment.id])
        Block.objects.filter(id=segment.id).update(metadata=metadata, dataset_count=left)
        removal.trimmed.append(segment.ulid)
    drop_blocks(removal, empty)


def without_datasets(metadata: bytes, positions: Collection[int]) -> bytes:
    """Return block metadata whose datasets at these positions have neither name nor labels."""
    meta = decode_metadata(metadata)
    datasets = [
        replace(dataset, name="", labels=()) if position in positions else dataset
        for position, dataset in enumerate(meta.datasets)
    ]
    return encode_metadata(replace(meta, datasets=tuple(datasets)))


def _shrink_jobs(removal: Removal, owned: Sequence[Block]) -> None:
    """Remove dropped sources from the jobs that owned them."""
    held = Job.objects.filter(id__in={block.owner_job_id for block in owned}, state__in=HOLDING_STATES)
    for job in held.order_by("id"):
        lost = [block for block in owned if block.owner_job_id == job.id]
        names = {block.ulid for block in lost}
        job.spec["sources"] = [ulid for ulid in job.spec["sources"] if ulid not in names]
        job.source_count -= len(lost)
        job.source_bytes -= sum(block.size_bytes for block in lost)
        if not job.source_count:
            _end(removal, job)
        job.save()


def _end(removal: Removal, job: Job) -> None:
    removal.ended_jobs += job.state in LIVE_STATES
    job.state, job.parked_kind, job.parked_reason = JobState.DISSOLVED, "", ""
    job.finished_at_ms = removal.now_ms
    JobPin.objects.filter(job=job).delete()
    # The failed block may be among the removed ones, so the quarantine ends.
    Quarantine.objects.filter(job=job, released_at_ms=None).update(
        released_at_ms=removal.now_ms, released_by=f"control:{removal.cause}", release_why="the block is gone"
    )
