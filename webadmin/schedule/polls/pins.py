"""Pins: the selection of the waiting jobs that a worker may get."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q, QuerySet

from engine.schedule.builds import is_newer
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import JobPin


def open_to(jobs: QuerySet[Job], *, worker: str, build: str) -> QuerySet[Job]:
    """Exclude jobs that are pinned to another worker, or excluded for this build."""
    bounds = JobPin.objects.filter(kind=JobPin.Kind.NEWER_THAN).values_list("value", flat=True).distinct()
    forbidding = (
        Q(kind=JobPin.Kind.NOT_BUILD, value=build)
        | Q(kind=JobPin.Kind.NEWER_THAN, value__in=[bound for bound in bounds if not is_newer(build, bound)])
        | Q(Q(kind=JobPin.Kind.WORKER), ~Q(value=worker))
    )
    return jobs.filter(~Exists(JobPin.objects.filter(forbidding, job=OuterRef("pk"))))
