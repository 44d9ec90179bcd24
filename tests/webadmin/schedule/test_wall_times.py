"""After idle time command time is behind the clock: people are shown the clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from engine.schedule.limits import EVERYTHING, LimitName
from tests.webadmin.admin import rows
from tests.webadmin.service import Service
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Job
from webadmin.schedule.services.change_limit import change_limit
from webadmin.schedule.services.pause_schedule import pause
from webadmin.schedule.wall_times import wall_times

IDLE_SECONDS = 120
HOUR_MS = 3_600_000


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


@pytest.fixture
def lagging(service: Service) -> Service:
    """A service whose command time fell behind while nothing was written to its log."""
    service.add_segments(1)
    for _ in range(2):
        service.clock.advance(IDLE_SECONDS)
        service.add_segments(1)
    assert read_time().wall_ms - read_time().now_ms > IDLE_SECONDS * 1000
    return service


@pytest.fixture
def ask() -> dict[str, str]:
    token = issue_worker_credential(name="operator", actor="test", scopes=["operate"]).wire_form
    return {"HTTP_AUTHORIZATION": f"Bearer {token}", "content_type": "application/json"}


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(("path", "body"), [("limits", {"limit": "failures_max", "value": 9}), ("pauses", {})])
def test_an_action_returns_until_when_it_is_valid_in_wall_time(
    lagging: Service, ask: dict[str, str], path: str, body: dict[str, object], dry_run: bool
) -> None:
    body = body | {"for_seconds": 3600, "why": "x", "dry_run": dry_run}
    answer = Client().post(f"/api/v1/operations/{path}", body, **ask).json()
    assert answer["valid_until_ms"] == lagging.clock.now_ms + HOUR_MS


def test_lists_show_when_values_were_set_and_end_in_wall_time(lagging: Service, ask: dict[str, str]) -> None:
    context, set_ms = ActionContext(actor="operator", why="x"), lagging.clock.now_ms
    change_limit(name=LimitName.FAILURES_MAX, scope=EVERYTHING, value=9, context=context, for_seconds=3600)
    pause(scope=EVERYTHING, context=context, for_seconds=3600)
    lagging.clock.advance(5)
    [limit] = Client().get("/api/v1/operations/limits", **ask).json()["limits"]
    [held] = Client().get("/api/v1/operations/pauses", **ask).json()["pauses"]
    assert (limit["set_at_ms"], limit["valid_until_ms"]) == (set_ms, set_ms + HOUR_MS)
    assert (held["since_ms"], held["valid_until_ms"]) == (set_ms, set_ms + HOUR_MS)


def quarantined(service: Service) -> Quarantine:
    """A block quarantined by the last command."""
    service.add_segments(1)
    command = rows.make_command()
    command.command_time_ms, command.wall_time = read_time().now_ms, service.people_time()
    command.save()
    return rows.make_quarantine(at_ms=command.command_time_ms, command_index=command.pk)


def test_a_quarantine_shows_its_start_in_wall_time_although_the_lag_grew_since(
    lagging: Service, ask: dict[str, str]
) -> None:
    row, began_ms = quarantined(lagging), lagging.clock.now_ms
    lagging.clock.advance(IDLE_SECONDS)
    [shown] = Client().get("/api/v1/operations/quarantine", **ask).json()["quarantine"]
    assert shown["at_ms"] == began_ms
    client = Client()
    client.force_login(User.objects.create(username="operator", is_staff=True, is_superuser=True))
    text = client.get(reverse("admin:profiles_quarantine_change", args=[row.pk])).content.decode()
    assert f'title="{moment(began_ms)} UTC">2\N{NO-BREAK SPACE}min ago' in text


def test_pages_of_orders_and_jobs_show_the_clock(lagging: Service) -> None:
    worker = lagging.worker()
    lagging.add_segments(20, shard=5)
    [spec] = worker.take()
    assigned_ms = lagging.clock.now_ms
    lagging.clock.advance(IDLE_SECONDS)
    client = Client()
    client.force_login(User.objects.create(username="operator", is_staff=True, is_superuser=True))
    page = client.get(reverse("admin:schedule_job_change", args=[Job.objects.get(name=spec.job).pk])).content.decode()
    assert f'title="{moment(assigned_ms)} UTC"' in page
    address = reverse("admin:schedule_limitchange_action", args=["set-limit"])
    fields = {"limit": "failures_max", "scope_kind": "global", "value": "9", "for_seconds": "3600", "why": "x"}
    preview = client.post(address, fields | {"step": "preview"}).content.decode()
    assert f"{moment(lagging.clock.now_ms + HOUR_MS)} UTC" in preview
    assert f"{moment(lagging.clock.now_ms)} UTC" in client.get("/admin/").content.decode()


def test_a_moment_whose_command_left_the_log_is_converted_by_the_present_lag(lagging: Service) -> None:
    walls = wall_times([10**9])
    assert walls.of(walls.now_ms - 5000, 10**9) == walls.wall_ms - 5000
