"""Finds the sources that jobs fail on: each is read alone, without output; a bad one is kept out, and its group planned
again as the whole group it is.

A job is looked at when the reason of its last failure names a source, or when it was parked for its failures. What is
read decides, never the report: a worker may be broken. A group is never split.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django.db.models import F

from engine.profiles.errors import BadObject
from engine.protocol.tsdb_jobs import KIND, BlockFile, TsdbSource
from engine.scheduling.model import JobState, ParkedKind
from engine.storage import ObjectStore, StorageError
from engine.tsdb.buckets.fetching import fetch_blocks
from engine.tsdb.verification import verify_block
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.register import BAD_OUTCOMES, is_kind
from webadmin.schedule.services.operation import Order
from webadmin.tsdb.models import REASON_MAX, Block, Group, Part
from webadmin.tsdb.services.quarantine_sources import BadSource, quarantine_sources
from webadmin.tsdb.states import BlockState, GroupState

log = logging.getLogger(__name__)

ACTOR = "control:verification"
JOBS_MAX = 50
"""Jobs that one round looks at."""
ALL_SOUND = "each of its sources can be read alone: the merge itself fails, or the worker; see its last error"

OpenStore = Callable[[str], ObjectStore]


@dataclass(slots=True)
class IsolationReport:
    """What was read: blocks quarantined with their errors, groups whose sources are all sound, blocks not read."""

    quarantined: dict[str, str] = field(default_factory=dict)
    sound: list[int] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)


def isolate_sources(stores: OpenStore, *, order: Order | None = None) -> IsolationReport:
    """Look at the sources of jobs that fail; safe to run twice and by two at once."""
    order = order or Order(actor=ACTOR, why="a job failed on it")
    report = IsolationReport()
    for job in _failing_jobs():
        related = Part.objects.select_related("group__tenant__bucket", "group__tenant__folder")
        part = related.defer("group__tenant__folder__looked", "group__tenant__slots").get(job=job)
        suspects = _suspects(job, part.group)
        if suspects:
            _look_at(part.group, job, suspects, stores(part.group.tenant.bucket.url), order, report)
    return report


def _failing_jobs() -> list[Job]:
    """Return jobs whose last run failed and that nobody runs now: those parked for it, and those that wait again.

    Not those whose sources were found sound after that run: they may be many, and stay for long.
    """
    jobs = Job.objects.filter(lane=KIND, tsdb_part__group__state=GroupState.OPEN)
    jobs = jobs.filter(tsdb_part__group__verified_token__lt=F("token"))
    parked = jobs.filter(is_kind(ParkedKind.EVICTED), state=JobState.PARKED)
    waiting = jobs.filter(state=JobState.WAITING, failures__gt=0)
    return [*parked.order_by("id")[:JOBS_MAX], *waiting.order_by("id")[:JOBS_MAX]]


def _suspects(job: Job, group: Group) -> list[Block]:
    """Return the sources to read: the named one, or all of a parked job, the named one first."""
    last = Attempt.objects.filter(job=job, outcome__in=BAD_OUTCOMES).order_by("-token").first()
    named = str(((last.reason if last else None) or {}).get("object", ""))
    sources = list(Block.objects.filter(group=group, state=BlockState.OWNED, ulid__in=job.spec["sources"]))
    sources.sort(key=lambda block: (block.ulid not in named, block.min_time_ms, block.ulid))
    return sources if job.state == JobState.PARKED else [block for block in sources if block.ulid in named]


def _look_at(
    group: Group, job: Job, suspects: Sequence[Block], store: ObjectStore, order: Order, report: IsolationReport
) -> None:
    bad: list[BadSource] = []
    is_complete = True
    for block in suspects:
        try:
            error = _read_alone(block, group.tenant.folder.name, store)
        except (StorageError, OSError) as trouble:  # says nothing of the block
            report.unread[block.ulid] = str(trouble)
            log.warning("source_not_read block=%s reason=%s", block.ulid, trouble)
            is_complete = False
            continue
        if error is not None:
            bad.append(BadSource(block=block, error=error))
    if bad:
        report.quarantined |= {one.block.ulid: str(one.error) for one in quarantine_sources(group, job, bad, order)}
    elif is_complete:
        report.sound.append(group.id)
        finding = ALL_SOUND if job.state == JobState.PARKED else ""
        Group.objects.filter(id=group.id, verified_token__lt=job.token).update(
            verified_token=job.token, finding=finding[:REASON_MAX]
        )


def _read_alone(block: Block, folder: str, store: ObjectStore) -> BadObject | None:
    """Download a block and read all of it; return what is wrong with it. Raises StorageError, OSError."""
    source = TsdbSource(
        id=block.ulid,
        level=block.level,
        files=tuple(BlockFile(**file) for file in block.files),
        meta=bytes(block.meta),
    )
    with tempfile.TemporaryDirectory(prefix="lithify-verify-") as parent:
        try:
            [copy] = fetch_blocks(store, folder, [source], Path(parent))
            verify_block(copy)
        except BadObject as error:
            return error
    return None
