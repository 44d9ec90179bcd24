"""Planning wakes nodes through the broker, and does not depend on it."""

from __future__ import annotations

import pytest
import redis

from tasks.beat import app
from tasks.lanes.tables.control import plan_tables
from tasks.queues import WAKE_QUEUE
from tests.processes import Processes, free_port
from tests.webadmin.lanes.tables.conftest import World
from tests.webadmin.lanes.tables.parquet_files import put_hours
from webadmin.lanes.tables.task_models import Task

APART = {"small_cost": 1, "task_cost_max": 100_000_000}
"""Every chunk is a task of its own."""


def test_a_wake_up_is_sent_for_each_planned_task(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.set(**APART)
    for number in (0, 2, 4):
        world.add(*put_hours(world.store, number, hours=[1, 5]))
    with Processes() as processes:
        _, url = processes.start_redis()
        monkeypatch.setattr(app.conf, "broker_write_url", url)
        plan_tables()
        with redis.Redis.from_url(url) as broker:
            assert broker.llen(WAKE_QUEUE) == Task.objects.count() == 3
            plan_tables()
            assert broker.llen(WAKE_QUEUE) == 3, "nothing new was planned"


def test_without_a_broker_tasks_are_planned_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add(*put_hours(world.store, 0, hours=[1, 5]))
    monkeypatch.setattr(app.conf, "broker_write_url", f"redis://127.0.0.1:{free_port()}/0")
    plan_tables()
    assert Task.objects.count() == 1
