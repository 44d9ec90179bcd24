"""Find the sources that make jobs fail: read each one individually, quarantine bad ones, plan the group again.

A job is examined when the reason of its last failure names a source, or when it was parked because of failures. Only
what is read here decides, not the worker's report: a worker may be faulty. A group is never split.

Blocks are downloaded one at a time into a scratch folder of this installation, if there is enough disk space, up to a
number of bytes per round; the next round continues with the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import F

from engine.core.errors import BadObject
from engine.core.scratch_folders import ScratchFull, reserve_space, scratch_folder
from engine.formats.prometheus.errors import OnlyCopied
from engine.lanes.tsdb.buckets.fetching import fetch_blocks
from engine.lanes.tsdb.jobs import KIND, BlockFile, TsdbSource
from engine.lanes.tsdb.merge.merge_job import check_names
from engine.lanes.tsdb.merge.verification import verify_block
from engine.schedule.model import JobState, ParkedKind
from engine.storage import ObjectStore, StorageError
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.backoff import again_at_ms
from webadmin.lanes.tsdb.models import REASON_MAX, Block, Group, Part
from webadmin.lanes.tsdb.services.quarantine_sources import BadSource, of_place, quarantine_sources
from webadmin.lanes.tsdb.states import BlockState, GroupState
from webadmin.schedule.isolation_stops import stopped_places
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.register import BAD_OUTCOMES, is_kind

log = logging.getLogger(__name__)

ACTOR = "control:verification"
JOBS_MAX = 50
"""Maximum number of jobs of each kind (waiting, parked) that one round examines."""
BYTES_PER_ROUND = 32 << 30
"""Bytes read per round, or one block if it is larger: this keeps a round within minutes."""
SCRATCH = "scratch"
"""Folder below LITHIFY_HOME for downloaded blocks."""
ALL_READABLE = "each of its sources can be read alone: the merge itself fails, or the worker; see its last error"

OpenStore = Callable[[str], ObjectStore]


@dataclass(slots=True)
class IsolationReport:
    """Result of a round: blocks quarantined with their errors, groups with only readable sources, blocks not read."""

    quarantined: dict[str, str] = field(default_factory=dict)
    readable: list[int] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    bytes_read: int = 0

    def has_room(self, block: Block) -> bool:
        """Return whether the byte budget of this round allows reading the block."""
        return not self.bytes_read or self.bytes_read + block.size_bytes <= BYTES_PER_ROUND


def isolate_sources(stores: OpenStore, *, context: ActionContext | None = None) -> IsolationReport:
    """Examine the sources of failing jobs. Idempotent and safe to run concurrently."""
    context = context or ActionContext(actor=ACTOR, why="a job failed on it")
    report = IsolationReport()
    for job in _failing_jobs():
        related = Part.objects.select_related("group__tenant__bucket", "group__tenant__folder")
        part = related.defer("group__tenant__folder__examined", "group__tenant__slots").get(job=job)
        if part.group.state != GroupState.OPEN:  # another partition of the group had a bad source
            continue
        try:
            suspects = _suspects(job, part.group)
            if suspects:
                _look_at(part, job, suspects, stores(part.group.tenant.bucket.url), context, report)
            else:  # nothing left to examine until the job fails again
                _tick_off(part, job)
        except Exception as error:  # an error must not stop the other jobs
            log.exception("sources_not_looked_at job=%s", job.name)
            report.unread[job.name] = str(error)
            _look_later(part)
    return report


def _failing_jobs() -> list[Job]:
    """Return jobs without a lease whose last run failed: parked ones, and waiting ones that will be retried.

    Leaves out jobs already examined after that run (many, for a long time), jobs in back-off after a source could not
    be read, and jobs of tenants for which quarantine is stopped until an operator decides.
    """
    jobs = Job.objects.filter(lane=KIND, tsdb_part__group__state=GroupState.OPEN)
    for place in stopped_places(KIND):
        jobs = jobs.exclude(of_place(place, "tsdb_part__group__tenant"))
    jobs = jobs.filter(tsdb_part__verified_token__lt=F("token"), tsdb_part__recheck_at_ms__lte=dialect.clock_ms())
    parked = jobs.filter(is_kind(ParkedKind.EVICTED), state=JobState.PARKED)
    waiting = jobs.filter(state=JobState.WAITING, failures__gt=0)
    return [*parked.order_by("id")[:JOBS_MAX], *waiting.order_by("id")[:JOBS_MAX]]


def _suspects(job: Job, group: Group) -> list[Block]:
    """Return the sources to read: the named one, or all of a parked job with the named one first."""
    named = str(_last_reason(job).get("object", ""))
    sources = list(Block.objects.filter(group=group, state=BlockState.OWNED, ulid__in=job.spec["sources"]))
    sources.sort(key=lambda block: (block.ulid not in named, block.min_time_ms, block.ulid))
    return sources if job.state == JobState.PARKED else [block for block in sources if block.ulid in named]


def _look_at(
    part: Part, job: Job, suspects: Sequence[Block], store: ObjectStore, context: ActionContext, report: IsolationReport
) -> None:
    group = part.group
    bad: list[BadSource] = []
    readable = list(part.examined["readable"]) if part.examined.get("token") == job.token else []
    left = [block for block in suspects if block.ulid not in readable]
    is_unread = False
    met_only_copied = _last_reason(job).get("error_class") == OnlyCopied.__name__
    for number, block in enumerate(left):
        if not report.has_room(block):
            left = left[number:]
            break
        try:
            error = _read_alone(
                block,
                group.tenant.folder.name,
                store,
                budget_bytes=job.spec["task_memory_bytes"],
                is_merged_by_time=met_only_copied and _has_company(block, group),
            )
        except (StorageError, ScratchFull, OSError) as trouble:  # the block itself may be readable
            report.unread[block.ulid] = str(trouble)
            log.warning("source_not_read block=%s reason=%s", block.ulid, trouble)
            is_unread = True
            continue
        report.bytes_read += block.size_bytes
        if error is None:
            readable.append(block.ulid)
        else:
            bad.append(BadSource(block=block, error=error))
    else:
        left = []
    Part.objects.filter(id=part.id).update(examined={"token": job.token, "readable": readable})
    if bad:
        report.quarantined |= {one.block.ulid: str(one.error) for one in quarantine_sources(group, job, bad, context)}
    elif is_unread:
        _look_later(part)
    elif not left:
        report.readable.append(group.id)
        _tick_off(part, job)
        finding = ALL_READABLE if job.state == JobState.PARKED else ""
        Group.objects.filter(id=group.id).update(finding=finding[:REASON_MAX])


def _tick_off(part: Part, job: Job) -> None:
    """Record that the job's last failure was examined."""
    Part.objects.filter(id=part.id, verified_token__lt=job.token).update(
        verified_token=job.token, examined={}, unread=0, recheck_at_ms=0
    )


def _look_later(part: Part) -> None:
    """Back off reading the partition's sources."""
    unread = part.unread + 1
    at_ms = again_at_ms(dialect.clock_ms(), unread)
    Part.objects.filter(id=part.id).update(unread=unread, recheck_at_ms=at_ms)


def _has_company(block: Block, group: Group) -> bool:
    """Return whether other sources of the group overlap the block in time."""
    others = Block.objects.filter(group=group, state=BlockState.OWNED).exclude(id=block.id)
    return others.filter(min_time_ms__lt=block.max_time_ms, max_time_ms__gt=block.min_time_ms).exists()


def _last_reason(job: Job) -> dict[str, Any]:
    """Return the failure reason of the job's last failed run, {} if it gave none."""
    last = Attempt.objects.filter(job=job, outcome__in=BAD_OUTCOMES).order_by("-token").first()
    return (last.reason if last else None) or {}


def _read_alone(
    block: Block, folder: str, store: ObjectStore, *, budget_bytes: int, is_merged_by_time: bool
) -> BadObject | None:
    """Download a block and read all of it; return the error found, or why the job's merge cannot process it.

    Raises StorageError, ScratchFull, OSError.
    """
    source = TsdbSource(
        id=block.ulid,
        level=block.level,
        files=tuple(BlockFile(**file) for file in block.files),
        meta=bytes(block.meta),
    )
    parent = Path(settings.HOME) / SCRATCH
    with scratch_folder(parent) as files:
        free = reserve_space(files, block.size_bytes)
        if free < block.size_bytes:
            raise ScratchFull(str(parent), block.size_bytes, free)
        try:
            check_names({file.name for file in source.files})
            [copy] = fetch_blocks(store, folder, [source], files)
            verify_block(copy, budget_bytes=budget_bytes, is_merged_by_time=is_merged_by_time)
        except BadObject as error:
            return error
    return None
