"""Writes into the bucket what was merged into what, so that an index built from the bucket counts nothing twice.

It runs before objects are deleted, in the order of commands: while a record is missing, all of its sources exist.
"""

from __future__ import annotations

from collections import defaultdict

from engine.storage.model import ObjectStore
from webadmin.index.lineage_objects import LineageRecord
from webadmin.index.models import BlockLineage, LineageMark
from webadmin.schedule.models import Job

JOBS_PER_ROUND = 100


def record_lineage(*, store: ObjectStore) -> int:
    """Record every swap that is not recorded yet; return how many there were. Safe to run twice and by two.

    Raises StorageError where the store fails: what was recorded until then stays so, and nothing may be deleted.
    """
    mark, _ = LineageMark.objects.get_or_create(id=1)
    recorded, count = mark.recorded_index, 0
    while jobs := _finished_after(recorded):
        for record in _records(jobs):
            store.put(record.key, record.encode())
            count += 1
        recorded = max(jobs.values())
        LineageMark.objects.filter(id=1, recorded_index__lt=recorded).update(recorded_index=recorded)
    return count


def _finished_after(index: int) -> dict[int, int]:
    """Return the next finished jobs with their commands; all jobs of a command or none, or some would be skipped."""
    finished = Job.objects.filter(finished_command_index__gt=index).order_by("finished_command_index", "id")
    jobs = dict(finished.values_list("id", "finished_command_index")[:JOBS_PER_ROUND])
    if len(jobs) == JOBS_PER_ROUND:
        last = max(jobs.values())
        jobs |= dict(finished.filter(finished_command_index=last).values_list("id", "finished_command_index"))
    return jobs


def _records(jobs: dict[int, int]) -> list[LineageRecord]:
    pairs: defaultdict[int, set[tuple[int, str, str]]] = defaultdict(set)
    rows = BlockLineage.objects.filter(job__in=jobs)
    for job_id, shard, source, result in rows.values_list("job", "source__shard", "source__ulid", "result__ulid"):
        pairs[job_id].add((shard, source, result))
    return [
        LineageRecord(
            shard=min(shard for shard, _, _ in pairs[job_id]),
            command_index=jobs[job_id],
            sources=tuple(sorted({source for _, source, _ in pairs[job_id]})),
            results=tuple(sorted({result for _, _, result in pairs[job_id]})),
        )
        for job_id in sorted(pairs, key=lambda job_id: jobs[job_id])
    ]
