"""Queries about deletion for operators: progress of a delete request, and what needs an action."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Prefetch, QuerySet

from engine.lanes.profiles.jobs import KIND
from engine.schedule.model import JobState, ParkedKind
from engine.schedule.progress import count_text
from webadmin.lanes.profiles.deletion_models import DeleteRequest, DeletionCertificate
from webadmin.lanes.profiles.masks import concerned, mask_of
from webadmin.lanes.profiles.models import Block, DeleteState, Tombstone
from webadmin.lanes.profiles.states import LIVE_STATES
from webadmin.schedule.models import Job

COUNTED_MAX = 10_000
"""Maximum number of blocks of one request that are counted on its page."""
JOBS_SHOWN_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProgress:
    """Progress of a request in blocks: blocks to be rewritten by state, and objects to be deleted.

    ``parked`` and ``quarantined`` are the blocks to be rewritten whose jobs run only after an operator's action. No
    number exceeds COUNTED_MAX.
    """

    in_segments: int
    in_blocks: int
    removed: int
    jobs: tuple[Job, ...]
    parked: int = 0
    quarantined: int = 0

    @property
    def left(self) -> int:
        """Return the number of objects that still contain data of the request."""
        return self.in_segments + self.in_blocks + self.removed

    def waits_for(self) -> tuple[str, ...]:
        """Return what the request is waiting for, in words, first what needs an operator."""
        moving = self.in_segments + self.in_blocks - self.parked - self.quarantined
        waits = (
            (self.quarantined, "in quarantine also hold other data: release or repair them, or delete that data too"),
            (self.parked, "in parked jobs: they are tried once more at half the time; requeue them, or find the cause"),
            (moving, "to be merged or rewritten: it takes workers that poll, and nothing paused"),
            (self.removed, "left the index, and their objects go when the deletion delay is over"),
        )
        return tuple(f"{count_text(count, 'block')} {what}" for count, what in waits if count > 0)


def request_progress(request: DeleteRequest) -> RequestProgress:
    """Return the progress; six bounded queries, none for a request that is done."""
    if request.state == DeleteState.DONE:
        return RequestProgress(in_segments=0, in_blocks=0, removed=0, jobs=())
    held = concerned(mask_of(request)).order_by().values("block_id").distinct()
    live = held.filter(block__state__in=LIVE_STATES)
    stuck = live.filter(block__owner_job__state=JobState.PARKED)
    quarantined = stuck.filter(block__owner_job__parked_kind=ParkedKind.QUARANTINED.value)
    owned = Block.objects.filter(id__in=live, owner_job__isnull=False).values("owner_job")
    jobs = Job.objects.filter(id__in=owned, lane=KIND).select_related("worker").defer("spec", "result")
    return RequestProgress(
        in_segments=live.filter(block__level=0)[:COUNTED_MAX].count(),
        in_blocks=live.filter(block__level__gt=0)[:COUNTED_MAX].count(),
        removed=held.exclude(block__state__in=LIVE_STATES)[:COUNTED_MAX].count(),
        jobs=tuple(jobs.order_by("id")[:JOBS_SHOWN_MAX]),
        parked=stuck.exclude(block__owner_job__parked_kind=ParkedKind.QUARANTINED.value)[:COUNTED_MAX].count(),
        quarantined=quarantined[:COUNTED_MAX].count(),
    )


def requests_for_list() -> QuerySet[DeleteRequest]:
    """Return requests with their tenant and certificates."""
    certificates = Prefetch("certificates", queryset=DeletionCertificate.objects.order_by("-id"))
    return DeleteRequest.objects.select_related("tenant").prefetch_related(certificates)


def tombstones_that_fail(rows: QuerySet[Tombstone]) -> QuerySet[Tombstone]:
    """Return the tombstones whose last deletion failed."""
    return rows.filter(deleted_at_ms=None).exclude(last_error="")


def late_requests(rows: QuerySet[DeleteRequest], now_ms: int) -> QuerySet[DeleteRequest]:
    """Return the requests that are past their deadline and not done."""
    return rows.filter(state=DeleteState.HIDDEN, deadline_at_ms__lt=now_ms)
