"""Delete data that is no longer needed: ledger rows, lineage records, scratch objects, unfinished uploads.

Each sweep is bounded per run and continues in the next one; none lists more of the bucket than the scratch folder. All
ages have wide margins, so that clocks that differ by hours, and writers that pause for hours, do no harm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from engine.core import ulids
from engine.storage.model import ObjectStore
from webadmin.base.database import dialect
from webadmin.lanes.profiles.models import AcceptedId, BlockLineage, LineageMark, LineageObject, Tombstone
from webadmin.lanes.profiles.registration import LEDGER_MS
from webadmin.lanes.profiles.services.event_totals import count_swept
from webadmin.schedule.command_log import read_time
from webadmin.schedule.services.guard_deletions import DeletionBatches, allow_deletions

DAY_MS = 24 * 3600 * 1000
LEDGER_GRACE_MS = DAY_MS
LEDGER_ROWS_PER_RUN = 10_000
RECORD_GRACE_MS = 7 * DAY_MS
"""The record of the winning merge identifies uncommitted results; they are swept within this time."""
RECORDS_PER_RUN = 500
SCRATCH = "scratch/"
SCRATCH_GRACE_MS = DAY_MS
"""Longer than any job runs."""
SCRATCH_OBJECTS_PER_RUN = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """Numbers of deletions in one run."""

    ledger_rows: int
    lineage_records: int
    scratch_objects: int
    unfinished_uploads: int


def sweep_leftovers(*, store: ObjectStore) -> SweepReport:
    """Run every sweep once. Safe to repeat and to run concurrently. Raises StorageError; earlier deletions remain."""
    report = SweepReport(
        ledger_rows=sweep_ledger(),
        lineage_records=sweep_lineage(store=store),
        scratch_objects=sweep_scratch(store=store),
        unfinished_uploads=store.sweep_unfinished(before=(dialect.clock_ms() - SCRATCH_GRACE_MS) / 1000),
    )
    count_swept("uploads", report.unfinished_uploads)
    return report


def sweep_ledger() -> int:
    """Delete accepted ids older than any that would be accepted now; return how many.

    An import of such an old block finds its row in the index, which also has the id.
    """
    before_ms = dialect.clock_ms() - LEDGER_MS - LEDGER_GRACE_MS
    if before_ms <= 0:
        return 0
    old = AcceptedId.objects.filter(ulid__lt=ulids.first(before_ms)).order_by("ulid")
    rows = list(old.values_list("id", flat=True)[:LEDGER_ROWS_PER_RUN])
    count, _ = AcceptedId.objects.filter(id__in=rows).delete()
    count_swept("ledger", count)
    return count


def sweep_lineage(*, store: ObjectStore) -> int:
    """Delete records none of whose blocks has an object any more, the oldest first; return how many."""
    mark, _ = LineageMark.objects.get_or_create(id=1)
    records: list[LineageObject] = list(
        LineageObject.objects.filter(id__gt=mark.swept_record).order_by("id")[:RECORDS_PER_RUN]
    )
    count = 0
    removable = list(_without_objects(records))
    if removable:
        allow_deletions(store=store)
    for record, sources in removable:
        # While another record names one of its sources as a result, this record names what replaced that result.
        jobs_of = BlockLineage.objects.filter(result__in=sources).values("job")
        if LineageObject.objects.filter(job__in=jobs_of).exists():
            continue
        store.delete(record.key)
        LineageObject.objects.filter(id=record.id).delete()
        count += 1
    # After the last one it starts again: remaining records may have lost their blocks by then.
    last = records[-1].id if len(records) == RECORDS_PER_RUN else 0
    LineageMark.objects.filter(id=1).update(swept_record=last)
    count_swept("lineage", count)
    return count


def sweep_scratch(*, store: ObjectStore) -> int:
    """Delete old objects of the scratch folder, left by interrupted jobs; return how many."""
    before = (dialect.clock_ms() - SCRATCH_GRACE_MS) / 1000
    count, batches = 0, DeletionBatches(store=store)
    for info in list(islice(store.list(SCRATCH), SCRATCH_OBJECTS_PER_RUN)):
        if info.modified_at < before:
            batches.allow_next()
            store.delete(info.key)
            count += 1
    count_swept("scratch", count)
    return count


def _without_objects(records: Sequence[LineageObject]) -> Iterator[tuple[LineageObject, list[int]]]:
    """Yield the records whose blocks' objects were all deleted long enough ago, each with its sources' rows."""
    before_ms = read_time().now_ms - RECORD_GRACE_MS
    sources = _sources(records)
    results = _results([record.job_id for record in records if record.job_id])
    blocks = {block for part in (*sources.values(), *results.values()) for block in part}
    old = Tombstone.objects.filter(block__in=blocks, deleted_at_ms__lt=before_ms)
    gone = set(old.values_list("block_id", flat=True))
    for record in records:
        own = sources[record.command_index, record.job_id]
        if own and gone.issuperset(own) and gone.issuperset(results[record.job_id] if record.job_id else ()):
            yield record, own


def _sources(records: Sequence[LineageObject]) -> defaultdict[tuple[int, int | None], list[int]]:
    sources: defaultdict[tuple[int, int | None], list[int]] = defaultdict(list)
    rows = Tombstone.objects.filter(command_index__in={record.command_index for record in records})
    for command_index, job_id, block_id in rows.values_list("command_index", "job_id", "block_id"):
        sources[command_index, job_id].append(block_id)
    return sources


def _results(jobs: Sequence[int]) -> defaultdict[int, set[int]]:
    results: defaultdict[int, set[int]] = defaultdict(set)
    rows = BlockLineage.objects.filter(source__owner_job__in=jobs)
    for job_id, block_id in rows.values_list("job_id", "result_id").distinct():
        results[job_id].add(block_id)
    return results
