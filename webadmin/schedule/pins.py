"""Who may get a job, as far as operators have said: a poll asks for waiting jobs through this."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q, QuerySet

from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import JobPin


def open_to(jobs: QuerySet[Job], *, worker: str, build: str) -> QuerySet[Job]:
    """Leave out jobs that are pinned to another worker, or kept from this build."""
    forbidding = Q(kind=JobPin.Kind.NOT_BUILD, value=build) | Q(Q(kind=JobPin.Kind.WORKER), ~Q(value=worker))
    return jobs.filter(~Exists(JobPin.objects.filter(forbidding, job=OuterRef("pk"))))
