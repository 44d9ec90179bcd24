"""The command and the page that requeue failed jobs say the same, and what a source of a parked job is shown as."""

from __future__ import annotations

import json
import re
from io import StringIO

from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from tests.webadmin.service import REASON, Service
from webadmin.lanes.profiles.models import Block
from webadmin.schedule.models import Job


def park(service: Service, shard: int, **columns: str) -> Job:
    """Let a job fail until it is parked; ``columns`` say as what."""
    service.add_segments(20, shard=shard)
    worker = service.worker()
    for _ in range(4):
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, REASON), capacity=0)
    Job.objects.filter(name=spec.job).update(**columns)
    return Job.objects.get(name=spec.job)


def test_command_and_page_name_the_same_jobs_and_what_they_leave_out(operator: Client, service: Service) -> None:
    evicted = park(service, 1)
    quarantined = park(service, 2, parked_kind="quarantined", parked_reason="quarantined as damaged")
    deferred = park(service, 3, parked_kind="deferred", parked_reason="an operator set it aside")
    notes = [
        "1 deferred job not included: requeue them as deferred jobs",
        "1 quarantined job not included: release their blocks from quarantine",
    ]
    out = StringIO()
    call_command("reprocess_failed_jobs", "--all", "--dry-run", "--json", stdout=out)
    told = json.loads(out.getvalue())
    assert (told["changed"], told["left"], told["notes"]) == ([evicted.name], [], notes)
    address = reverse("admin:progress_parkedjob_action", args=["requeue-many"])
    fields = {"step": "preview", "why": "because", "all": "on"}
    page = operator.post(address, fields).content.decode()
    assert evicted.name in page
    assert quarantined.name not in page
    assert deferred.name not in page
    assert "Left (" not in page.replace("Left (0)", "")
    assert all(note in page for note in notes)
    page = operator.post(address, fields | {"kind": "deferred"}).content.decode()
    assert deferred.name in page
    assert evicted.name not in page
    text = StringIO()
    call_command("reprocess_failed_jobs", "--all", "--dry-run", stdout=text)
    assert "release their blocks from quarantine" in text.getvalue()


def test_a_quarantined_block_is_not_shown_as_owned(operator: Client, service: Service) -> None:
    for shard, kind in ((1, ""), (2, "quarantined")):
        job = park(service, shard, parked_kind=kind, parked_reason="quarantined as damaged")
        block = Block.objects.filter(owner_job=job).first()
        page = operator.get(reverse("admin:profiles_block_change", args=[block.pk])).content.decode()
        assert re.search(r"<span class=\"lt-badge lt-bad\"[^>]*>(\w+)</span>", page)[1] == (kind or "evicted")
        assert "is a source of a job" not in page
    listing = operator.get(reverse("admin:profiles_block_changelist")).content.decode()
    assert listing.count(">quarantined</span>") == 20
    assert ">owned</span>" not in listing
