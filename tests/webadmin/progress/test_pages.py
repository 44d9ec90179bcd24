"""The progress page and the page that says why nothing is happening."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from tests.webadmin.admin.test_front_page import words
from tests.webadmin.service import Service
from webadmin.progress.services import count_log


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create(username="operator", is_staff=True, is_superuser=True))
    return client


def text_of(operator: Client, name: str, /, **query: str) -> str:
    answer = operator.get(reverse(name), query)
    assert answer.status_code == 200
    return words(answer.content.decode())


def test_the_progress_page_shows_what_never_clears(operator: Client, service: Service) -> None:
    count_log()
    service.add_segments(40)
    service.clock.advance(60)
    count_log()
    text = text_of(operator, "progress-page")
    assert "all (segments) 0 40" in text
    assert "never at this rate" in text
    assert "40 blocks," in text


def test_the_page_without_counts_names_what_to_start(operator: Client) -> None:
    assert "rates require beat and a control worker" in text_of(operator, "progress-page")


def test_the_standstill_page_names_the_blocker_and_its_end(operator: Client, service: Service) -> None:
    service.add_segments(20)
    count_log()
    text = text_of(operator, "standstill-page")
    assert "work is due and no worker polls: none has ever polled" in text
    assert "start a compactor node" in text
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job))
    count_log()
    assert "No blockers." in text_of(operator, "standstill-page")


def test_the_page_explains_a_name(operator: Client, service: Service) -> None:
    [block_id] = service.add_segments(1)
    assert f"Segment {block_id} is queued: it waits" in text_of(operator, "standstill-page", name=block_id)
    assert "Nothing is called &#x27;nothing&#x27;" in text_of(operator, "standstill-page", name="nothing")
    escaped = operator.get(reverse("standstill-page"), {"name": "<script>alert(1)</script>"}).content.decode()
    assert "<script>alert(1)" not in escaped


def test_a_block_is_explained_only_with_the_permission_to_view_jobs(service: Service) -> None:
    [block_id] = service.add_segments(1)
    clerk = User.objects.create(username="clerk", is_staff=True)
    client = Client()
    client.force_login(clerk)
    told = text_of(client, "standstill-page", name=block_id)
    assert "require the permission to view jobs" in told
    assert "is queued" not in told
    clerk.user_permissions.add(Permission.objects.get(codename="view_job", content_type__app_label="schedule"))
    assert f"Segment {block_id} is queued" in text_of(client, "standstill-page", name=block_id)


@pytest.mark.parametrize("name", ["progress-page", "standstill-page"])
def test_strangers_are_sent_to_the_login(db: None, name: str) -> None:
    assert "/admin/login/" in Client().get(reverse(name))["Location"]
