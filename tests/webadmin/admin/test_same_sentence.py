"""One sentence about a block or job everywhere: its page, the explain page, the API, the command."""

from __future__ import annotations

from html import unescape
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from tests.webadmin.admin.test_admin_actions import parked_by_failures
from tests.webadmin.admin.test_front_page import words
from tests.webadmin.service import Service
from webadmin.base.access.services import issue_worker_credential
from webadmin.lanes.profiles.models import Block
from webadmin.schedule.explain import explain_name
from webadmin.schedule.models import Job


def told_by_pages(operator: Client, name: str, *pages: str) -> list[str]:
    asked = reverse("standstill-page") + f"?name={name}"
    return [unescape(words(operator.get(page).content.decode())) for page in (asked, *pages)]


def told_by_api(name: str, key: str) -> str:
    answer = Client().get(f"/api/v1/explain/{name}", headers={"Authorization": f"Bearer {key}"})
    return str(answer.json()["explanations"][0]["sentence"])


def told_by_command(name: str) -> str:
    out = StringIO()
    call_command("explain", name, stdout=out)
    return out.getvalue().strip()


@pytest.mark.parametrize("state", ["queued", "leased", "done", "parked"])
def test_a_job_and_its_blocks_are_explained_alike_everywhere(operator: Client, service: Service, state: str) -> None:
    if state == "parked":
        parked_by_failures(service)
    else:
        service.add_segments(20)
        worker = service.worker()
        if state != "queued":
            [spec] = worker.take()
        if state == "done":
            worker.poll(worker.success(spec.job), capacity=0)
    block = Block.objects.order_by("pk").first()
    things = [(block.ulid, [reverse("admin:profiles_block_change", args=[block.pk])])]
    for job in Job.objects.all():
        pages = [reverse("admin:schedule_job_change", args=[job.pk])]
        pages += [reverse("admin:progress_parkedjob_change", args=[job.pk])] if state == "parked" else []
        things.append((job.name, pages))
    key = issue_worker_credential(name="reader", actor="test", scopes=("read",)).wire_form
    for name, pages in things:
        [explanation, *_] = explain_name(name)
        assert all(words(explanation.sentence) in page for page in told_by_pages(operator, name, *pages))
        assert told_by_command(name).startswith(explanation.sentence)
        assert told_by_api(name, key) == explanation.sentence
