"""Extend the leases that a worker still holds: conditional updates, no head, no log entry."""

from __future__ import annotations

import json
from collections.abc import Sequence

from django.db.models import Q

from engine.schedule.model import JobState, RenewLease
from webadmin.base.database.dialect import update_rows
from webadmin.schedule.models import Job, Worker


def renew_leases(renewals: Sequence[RenewLease], *, worker: Worker, expires_ms: int) -> list[RenewLease]:
    """Extend these leases to ``expires_ms``, never shortening one; return those that the worker held."""
    if not renewals:
        return []
    silent = [(renewal.job.id, renewal.job.token) for renewal in renewals if renewal.progress is None]
    progress_rows = [
        (renewal.job.id, renewal.job.token, _progress(renewal)) for renewal in renewals if renewal.progress
    ]
    held = {"state": JobState.LEASED.value, "worker_id": worker.id}
    renewed = sum(
        update_rows(Job, ("id", "token"), columns, rows, where=held, at_least={"lease_expires_ms": expires_ms})
        for columns, rows in (((), silent), (("progress",), progress_rows))
    )
    if renewed == len(renewals):
        return list(renewals)
    pairs = Q(pk__in=[])
    for renewal in renewals:
        pairs |= Q(id=renewal.job.id, token=renewal.job.token)
    still_held = set(Job.objects.filter(pairs, **held).values_list("id", flat=True))
    return [renewal for renewal in renewals if renewal.job.id in still_held]


def _progress(renewal: RenewLease) -> str:
    assert renewal.progress is not None
    progress = renewal.progress
    return json.dumps({"done": progress.done, "total": progress.total, "phase": progress.phase})
