"""The evidence against jobs that keep failing, for the isolation of bad blocks."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import F, Max, Q, QuerySet

from engine.lanes.profiles.jobs import KIND as PROFILES
from engine.schedule.isolation import FailedRun, Suspect
from engine.schedule.model import AttemptOutcome, JobState, ParkedKind
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.breakages import error_class_of
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.register import BAD_OUTCOMES, is_kind

ROUND_MS = 30_000
LARGE_JOBS_MAX = 100
SINGLE_BLOCKS_MAX = 200
"""Maximum number of jobs in one round of isolation; the next round, seconds later, takes others."""


def evicted_jobs() -> list[Job]:
    """Return jobs parked for their failures with the jobs they were split from.

    First those that can be split, then those of one block, the one that failed last first: it is the likeliest to have
    a control by now. If there are too many for one round, rounds alternate, so that waiting jobs do not hide others.
    """
    evicted = Job.objects.filter(is_kind(ParkedKind.EVICTED), lane=PROFILES, state=JobState.PARKED)
    evicted = evicted.select_related("split_from")  # a group of another lane is never split
    large = evicted.filter(source_count__gt=1).order_by("added_at_ms", "id")
    alone = evicted.filter(source_count__lte=1).order_by("-assigned_at_ms", "-id")
    return [*_batch_of_round(large, LARGE_JOBS_MAX), *_batch_of_round(alone, SINGLE_BLOCKS_MAX)]


def _batch_of_round(jobs: QuerySet[Job], count_max: int) -> QuerySet[Job]:
    """Return all of the jobs, or the next ``count_max`` ones in every interval of ``ROUND_MS``."""
    pages = -(-jobs.count() // count_max)
    first = (read_time().wall_ms // ROUND_MS % pages) * count_max if pages else 0
    return jobs[first : first + count_max]


def sources_of(job: Job) -> list[Block]:
    """Return the blocks that the job owns, in merge order."""
    owned = Block.objects.filter(owner_job=job, state=BlockState.OWNED).defer("metadata")
    by_id = {block.ulid: block for block in owned}
    return [by_id[ulid] for ulid in job.spec["sources"] if ulid in by_id]


def read_suspect(job: Job, sources: Iterable[Block]) -> Suspect:
    """Return the evidence against a parked job; missing objects are determined by the store.

    Attempts before its last release from quarantine no longer count.
    """
    split = getattr(job, "split_from", None)
    released_ms = job.quarantines.aggregate(last=Max("released_at_ms"))["last"]
    since_ms = max(split.at_ms if split else job.added_at_ms, released_ms or 0)
    failed = job.attempts.filter(outcome__in=BAD_OUTCOMES, assigned_at_ms__gte=since_ms).order_by("token")
    return Suspect(
        keys=tuple(block.object_key for block in sources),
        runs=tuple(_run(attempt) for attempt in failed),
        is_part=split is not None,
        control_builds=_control_builds(job, since_ms),
    )


def _control_builds(job: Job, since_ms: int) -> frozenset[str]:
    """Return the builds that have merged another block of this job's kind since then."""
    merged = Attempt.objects.filter(
        ~Q(job=job),
        job__lane=job.lane,
        job__level=job.level,
        job__state=JobState.DONE,
        job__finished_at_ms__gte=since_ms,
        outcome=AttemptOutcome.COMPLETED,
        ended_at_ms=F("job__finished_at_ms"),
    )
    return frozenset(merged.values_list("build", flat=True).distinct())


def _run(attempt: Attempt) -> FailedRun:
    reason = attempt.reason or {}
    return FailedRun(
        error_class=error_class_of(reason),
        build=attempt.build,
        message=reason.get("message", ""),
        object=reason.get("object", ""),
        section=reason.get("section", ""),
        offset=reason.get("offset", -1),
    )
