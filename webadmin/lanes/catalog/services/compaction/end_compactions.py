"""End compactions: record the outcome, end the build, and release the run in the store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import F

from engine.lanes.catalog.plan.branch import BaseVersion, Refusal, refusal
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import clock_ms
from webadmin.lanes.catalog.lane_models import IS_PARKED, REASON_MAX, BranchWatch, Compaction
from webadmin.lanes.catalog.models import Build, Repository
from webadmin.lanes.catalog.services.records import read_record
from webadmin.lanes.catalog.states import CompactionState
from webadmin.schedule.models import Job
from webadmin.schedule.register import with_last_error
from webadmin.schedule.services.operation import Operation, operation
from webadmin.schedule.services.return_job_blocks import end_jobs

log = logging.getLogger(__name__)

ACTOR = "control:catalog"
GATHER_MS_MAX = 30 * 60_000
"""A compaction that takes longer than this from the seal to the job counts as abandoned, in milliseconds."""


def base_version_of(compaction: Compaction) -> BaseVersion:
    """Return the base version of a compaction's build."""
    data = compaction.base_version
    assert data is not None, "its rows were gathered"
    return BaseVersion(
        uid=str(compaction.branch_id), head=data["head"], snapshot=data["snapshot"], sealed=tuple(data["sealed"])
    )


def refused_words(why: Refusal) -> str:
    """Return the reason why a build was not published, for the history."""
    return f"{why.name.lower().replace('_', ' ')}: {why.value}"


def close_compactions(
    compactions: Sequence[Compaction], state: CompactionState, *, because: str = "", **figures: Any
) -> None:
    """Record the outcome of open compactions whatever their jobs do; ``figures`` are columns of the result."""
    now_ms = clock_ms()
    for each in compactions:
        mine = Compaction.objects.filter(pk=each.pk, state=CompactionState.OPEN)
        if not mine.update(state=state, finished_ms=now_ms, ended_because=because[:REASON_MAX], **figures):
            continue
        Build.objects.filter(pk=each.build_id).delete()
        watch = BranchWatch.objects.filter(branch=each.branch_id)
        if state == CompactionState.PUBLISHED:
            watch.update(
                took_ms=now_ms - each.begun_ms,
                last_bytes=figures.get("bytes_written") or 0,
                lost_in_a_row=0,
            )
        elif state in (CompactionState.LOST, CompactionState.FAILED) and not each.ended_because:
            watch.update(lost_in_a_row=F("lost_in_a_row") + 1)
        log.info("compaction_ended compaction=%d branch=%s state=%s why=%s", each.pk, each.branch_name, state, because)


def end_compactions(run: Operation, compactions: Sequence[Compaction], state: CompactionState, *, because: str) -> None:
    """End open compactions with their jobs, inside an operation that has written its entry."""
    jobs = list(Job.objects.filter(catalog_compaction__in=[each.pk for each in compactions]))
    end_jobs(run, jobs, because=because)
    close_compactions(compactions, state, because=because)


def end_abandoned() -> int:
    """End compactions whose process died before it created the job; return how many."""
    old = Compaction.objects.filter(
        state=CompactionState.OPEN, job=None, begun_ms__lt=clock_ms() - GATHER_MS_MAX
    ).order_by("pk")
    found = list(old)
    close_compactions(found, CompactionState.FAILED, because="the process that gathered its rows died")
    return len(found)


def end_lost() -> int:
    """End compactions that can no longer be published, so that no work is wasted on them; return how many."""
    lost: dict[str, list[Compaction]] = {}
    for each in Compaction.objects.filter(state=CompactionState.OPEN, job__isnull=False).order_by("pk"):
        why = refusal(read_record(each.branch_id), base_version_of(each))
        if why is not None:
            lost.setdefault(refused_words(why), []).append(each)
    for because, found in lost.items():
        _end(found, CompactionState.LOST, because)
    return sum(map(len, lost.values()))


def note_failed() -> int:
    """Record the error of compactions whose jobs were just parked for repeated failure; return how many.

    The branch backs off, longer after each failure. The job stays parked and visible until the branch is tried again
    (``end_parked``), a commit or reset makes it superfluous, or an operator requeues or returns it.
    """
    count = 0
    for each in Compaction.objects.filter(IS_PARKED, ended_because="").order_by("pk"):
        assert each.job_id is not None, "a parked compaction has a job"
        [job] = with_last_error(Job.objects.filter(pk=each.job_id))
        because = f"{job.last_error_class}: {job.last_error_message}"
        with transaction.atomic():
            noted = Compaction.objects.filter(pk=each.pk, state=CompactionState.OPEN, ended_because="")
            if not noted.update(ended_because=because[:REASON_MAX]):
                continue
            BranchWatch.objects.filter(branch=each.branch_id).update(lost_in_a_row=F("lost_in_a_row") + 1)
        log.warning("compaction_failed compaction=%d branch=%s why=%s", each.pk, each.branch_name, because)
        count += 1
    return count


def end_parked(branch_id: int) -> None:
    """End the compaction of a branch whose job is parked, if there is one, before the branch is tried again."""
    for each in list(Compaction.objects.filter(IS_PARKED, branch_id=branch_id)):
        _end([each], CompactionState.FAILED, each.ended_because or "its job failed too often")


def end_all(repository: Repository, *, because: str) -> None:
    """End all compactions of a repository."""
    found = list(Compaction.objects.filter(repository=repository, state=CompactionState.OPEN).order_by("pk"))
    if found:
        _end(found, CompactionState.ENDED, because)


def _end(compactions: Sequence[Compaction], state: CompactionState, because: str) -> None:
    with operation() as run:
        still = list(
            Compaction.objects.filter(pk__in=[each.pk for each in compactions], state=CompactionState.OPEN)
            .select_related("job")
            .order_by("pk")
        )
        if not still:
            return
        jobs = [each.job.name for each in still if each.job is not None]
        context = ActionContext(actor=ACTOR, why=because)
        run.write("end_compaction", context, target=", ".join(jobs), detail={"jobs": jobs, "because": because})
        end_compactions(run, still, state, because=because)
