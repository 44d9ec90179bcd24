"""Extends the leases that a worker still holds: one conditional update, no head, no log entry."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Case, F, JSONField, Q, Value, When
from django.db.models.functions import Greatest

from engine.scheduling.model import JobState, RenewLease
from webadmin.schedule.models import Job, Worker


def renew_leases(renewals: Sequence[RenewLease], *, worker: Worker, expires_ms: int) -> list[RenewLease]:
    """Extend these leases to ``expires_ms``, never shortening one; return those that the worker really held."""
    if not renewals:
        return []
    pairs = Q(pk__in=[])
    for renewal in renewals:
        pairs |= Q(id=renewal.job.id, token=renewal.job.token)
    held = Job.objects.filter(pairs, state=JobState.LEASED, worker=worker)
    renewed = held.update(
        lease_expires_ms=Greatest(F("lease_expires_ms"), Value(expires_ms)), progress=_progress(renewals)
    )
    if renewed == len(renewals):
        return list(renewals)
    still_held = set(held.values_list("id", flat=True))
    return [renewal for renewal in renewals if renewal.job.id in still_held]


def _progress(renewals: Sequence[RenewLease]) -> Case | F:
    told = [
        When(id=renewal.job.id, then=Value(_plain(renewal), output_field=JSONField()))
        for renewal in renewals
        if renewal.progress is not None
    ]
    return Case(*told, default=F("progress"), output_field=JSONField()) if told else F("progress")


def _plain(renewal: RenewLease) -> dict[str, object]:
    assert renewal.progress is not None
    return {"done": renewal.progress.done, "total": renewal.progress.total, "phase": renewal.progress.phase}
