"""The pages of a table whose files, turns and merges are real: what they say is what was done."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from engine.lanes.tables.plan.granularity import DAY_MS
from tests.webadmin.admin.test_admin_actions import give
from tests.webadmin.admin.test_front_page import words
from tests.webadmin.lanes.tables.conftest import World
from tests.webadmin.lanes.tables.parquet_files import day, put_hours, put_rows
from webadmin.lanes.tables.budget import read_budget
from webadmin.lanes.tables.cycle_view import budget_left
from webadmin.lanes.tables.models import Chunk, ChunkOverride, DataSource, Policy
from webadmin.lanes.tables.plan_preview import preview
from webadmin.lanes.tables.states import ChunkStatus
from webadmin.lanes.tables.status import statuses
from webadmin.lanes.tables.task_models import Task


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create(username="operator", is_staff=True, is_superuser=True))
    return client


def data(client: Client, world: World) -> dict[str, Any]:
    return client.get(reverse("timeline-data", args=[world.table.id])).json()


def page(client: Client, world: World) -> str:
    return words(client.get(reverse("admin:tables_datasource_change", args=[world.table.id])).content.decode())


def test_the_timeline_follows_a_table_from_its_files_to_its_merges(world: World, operator: Client) -> None:
    world.set(running_max=1, small_cost=1, task_cost_max=100_000_000)
    for number in (0, 2):
        world.add(*put_hours(world.store, number))
    fresh = data(operator, world)["columns"]
    assert (fresh["changed"], fresh["start_ms"]) == ([1, 1], [day(0), day(2)])
    world.turn()
    told = data(operator, world)
    assert (told["columns"]["unstable"], told["columns"]["changed"]) == ([1, 1], [0, 0])
    assert told["columns"]["segments"] == [24, 24]
    [spec] = world.node.take()
    assert sorted(task["state"] for task in data(operator, world)["tasks"]["shown"]) == ["running", "waiting"]
    now = statuses([DataSource.objects.get()])[world.table.id]
    assert (now.running, now.waiting, now.blocked, now.unstable) == (1, 1, 0, 2)
    assert now.to_rewrite == now.arrived == sum(told["columns"]["bytes"])
    assert "Tasks running 1 Tasks waiting 1, and 0 blocked by others" in page(operator, world)
    world.node.finish(spec)
    world.work_off()
    done = data(operator, world)
    assert (done["columns"]["stable"], done["columns"]["segments"], done["tasks"]["shown"]) == ([1, 1], [1, 1], [])
    assert "nothing to rewrite" in page(operator, world)
    assert preview(world.table, Policy.objects.get()).forecast.plan.tasks == ()
    told = words(operator.get(reverse("timeline-chunk", args=[world.table.id, day(0)])).content.decode())
    assert "published" in told
    assert "Committed 1 time" in told


def test_the_controller_creates_the_tasks_of_the_preview(world: World) -> None:
    for number in range(0, 12, 2):
        world.add(*put_hours(world.store, number, hours=range(number + 1)))
    put_rows(world.store, "over-midnight.parquet", [day(4) - 1, day(4), day(4) + 5], first_id=10**6)
    world.add("over-midnight.parquet")
    found = preview(world.table, Policy.objects.get())
    report = world.turn()
    assert len(report.created) == len(found.forecast.plan.tasks) > 0
    worked_on = {
        start for start, state in Chunk.objects.values_list("start_ms", "state") if state == ChunkStatus.UNSTABLE
    }
    assert worked_on == found.compacted
    assert found.forecast.is_fix_point


def test_a_file_across_midnight_that_is_left_alone_is_called_misaligned(world: World, operator: Client) -> None:
    put_rows(world.store, "over-midnight.parquet", [day(4) - 1, day(4), day(4) + 5])
    world.add("over-midnight.parquet")
    world.turn()
    columns = data(operator, world)["columns"]
    assert (columns["stable"], columns["misaligned"]) == ([1, 1], [1, 1])
    assert "misaligned" in world.chunk(3).note


def test_never_and_now_are_obeyed_and_now_ends_by_itself(world: World, operator: Client) -> None:
    for number in (0, 2):
        world.add(*put_hours(world.store, number, hours=[1, 5]))
    world.turn()
    give(operator, Chunk, "compact-never", world.chunk(0).id)
    give(operator, Chunk, "compact-now", world.chunk(2).id)
    world.turn()
    told = data(operator, world)
    assert told["columns"]["skipped"] == [1, 0]
    assert "it is excluded" in world.chunk(0).reason
    world.work_off()
    assert world.chunk(2).state == ChunkStatus.STABLE
    assert list(ChunkOverride.objects.filter(ended_at_ms=None).values_list("kind", flat=True)) == ["never"]
    give(operator, Chunk, "end-overrides", world.chunk(0).id)
    world.work_off()
    assert world.chunk(0).state == ChunkStatus.STABLE
    assert data(operator, world)["overrides"] == []
    assert world.chunk(0).end_ms == day(0) + DAY_MS


def test_the_budget_that_is_shown_is_the_one_that_the_controller_keeps_to(world: World) -> None:
    world.set(running_max=1, small_cost=1, task_cost_max=100_000_000, bytes_per_day=10**9)
    for number in (0, 2, 4):
        world.add(*put_hours(world.store, number))
    source = DataSource.objects.get()
    assert budget_left(source.policy) == read_budget(source).left == 10**9
    world.turn()
    [admitted] = Task.objects.exclude(admitted_at_ms=None)
    assert budget_left(source.policy) == read_budget(source).left == 10**9 - admitted.byte_count
    world.node.finish(*world.node.take())
    both = sum(Task.objects.exclude(admitted_at_ms=None).values_list("byte_count", flat=True))
    assert budget_left(source.policy) == 10**9 - both < 10**9 - admitted.byte_count, "the commit let the other one go"
    assert read_budget(source).waiting_tasks == 1
