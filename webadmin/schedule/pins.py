"""Who may get a job, as far as operators have said: a poll asks for waiting jobs through this."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q, QuerySet

from engine.schedule.builds import is_newer
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import JobPin


def open_to(jobs: QuerySet[Job], *, worker: str, build: str) -> QuerySet[Job]:
    """Leave out jobs that are pinned to another worker, or kept from this build."""
    bounds = JobPin.objects.filter(kind=JobPin.Kind.NEWER_THAN).values_list("value", flat=True).distinct()
    forbidding = (
        Q(kind=JobPin.Kind.NOT_BUILD, value=build)
        | Q(kind=JobPin.Kind.NEWER_THAN, value__in=[bound for bound in bounds if not is_newer(build, bound)])
        | Q(Q(kind=JobPin.Kind.WORKER), ~Q(value=worker))
    )
    return jobs.filter(~Exists(JobPin.objects.filter(forbidding, job=OuterRef("pk"))))
