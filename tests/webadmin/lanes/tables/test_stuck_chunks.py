"""Chunks of a task that ended are planned again, whatever ended it; chunks that stay without a task are reported.

How a table stands is the same word in command, list, page and front page.
"""

from __future__ import annotations

import json

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from engine.protocol.messages import FailureReason
from tests.webadmin.admin.conftest import operator
from tests.webadmin.lanes.tables.conftest import World, check_timelines
from tests.webadmin.lanes.tables.parquet_files import day, put_hours
from tests.webadmin.lanes.tables.test_adoption import run
from tests.webadmin.probes import probe
from webadmin.lanes.tables.models import Chunk, DataSource, Segment
from webadmin.lanes.tables.samples import table_samples
from webadmin.lanes.tables.services.run_cycle import due_tables
from webadmin.lanes.tables.services.settle_failures import FailureReport, settle_failure
from webadmin.lanes.tables.states import ChunkStatus, TaskState
from webadmin.lanes.tables.status import STUCK_MS, statuses, stuck_counts
from webadmin.lanes.tables.task_models import Task, TaskChunk, TaskSegment
from webadmin.progress.facts import read_standstill

__all__ = ["operator"]

DAYS = [day(number) for number in range(4)]


@pytest.fixture
def ended(world: World) -> World:
    """A table of four days whose one task over all of them ended, because a file of the second day is damaged."""
    names = [put_hours(world.store, number, hours=range(6)) for number in range(4)]
    world.add(*(name for own in names for name in own))
    assert len(world.turn().created) == 1
    [task] = Task.objects.all()
    assert task.chunk_count == 4
    [spec] = world.node.take()
    bad = names[1][3]
    data = bytearray(world.store.get(bad))
    data[4:60] = bytes(56)
    world.store.put(bad, bytes(data))
    world.node.fail(spec, FailureReason(error_class="BadObject", message="it cannot be read", object=bad))
    report = FailureReport()
    settle_failure(Task.objects.select_related("job", "source").get(), world.store, report)
    assert list(report.quarantined) == [bad]
    assert Task.objects.get().state == TaskState.ENDED
    return world


def test_all_chunks_of_a_task_that_ended_are_planned_again(ended: World) -> None:
    for chunk in Chunk.objects.all():
        assert "in task" not in chunk.reason
        assert "its task ended: its file" in chunk.reason
    foreseen = json.loads(run("plan", "--table", "events", "--tenant", "acme", "--dry-run", "--json"))
    assert foreseen["tasks"] > 0
    created = json.loads(run("plan", "--table", "events", "--tenant", "acme", "--json"))["created"]
    assert created == foreseen["tasks"]
    assert Task.objects.filter(state=TaskState.OPEN).count() == foreseen["tasks"]
    assert sorted(TaskChunk.objects.filter(is_open=True).values_list("start_ms", flat=True)) == DAYS
    ended.work_off()
    check_timelines()
    assert set(Chunk.objects.values_list("state", flat=True)) == {ChunkStatus.STABLE}


def test_a_reference_to_a_task_that_ended_counts_as_none(ended: World) -> None:
    """What an earlier version left: chunks that name a task of long ago, and that nothing marks as changed."""
    Chunk.objects.update(task=Task.objects.get(), is_dirty=False)
    DataSource.objects.update(is_dirty=False, recheck_ms=None)
    assert due_tables(ended.service.clock.now_ms, 10) == [ended.table]
    ended.turn()
    assert sorted(TaskChunk.objects.filter(is_open=True).values_list("start_ms", flat=True)) == DAYS
    check_timelines()


def test_a_table_at_rest_is_not_due(world: World) -> None:
    world.add(*put_hours(world.store, 0, hours=range(6)))
    world.work_off()
    assert due_tables(world.service.clock.now_ms, 10) == []


def test_chunks_that_stay_without_a_task_are_reported(ended: World, operator: Client) -> None:
    def stuck() -> int:
        return statuses([DataSource.objects.get()])[ended.table.id].stuck

    ended.service.clock.now_ms += STUCK_MS - 1
    assert stuck() == 0
    ended.service.clock.now_ms += 1
    assert stuck() == 4
    [blocker] = [one for one in read_standstill().lane_blockers if one.code == "chunks_stuck"]
    assert blocker.text.startswith("4 chunks of tables stuck")
    assert "chunks_stuck" in {one["code"] for one in probe("/progressz").json()["blockers"]}
    assert "4 chunks of tables stuck" in text_of(operator, reverse("standstill-page"))
    samples = dict(table_samples(10))["lithify_tables_chunks"]
    assert (("acme", "events", "stuck"), 4) in samples
    page = reverse("admin:tables_datasource_change", args=[ended.table.id])
    assert "4 chunks worth compacting, but not in a task" in text_of(operator, page)
    assert "4 chunks of tables stuck" in text_of(operator, "/admin/")
    ended.turn()
    assert stuck() == 0


def test_a_chunk_that_shares_segments_is_stuck_too_unless_a_task_has_one_of_them(ended: World) -> None:
    key = Segment.objects.first().pk
    Chunk.objects.update(analysis={**Chunk.objects.first().analysis, "shared": [key]})
    ended.service.clock.now_ms += STUCK_MS
    assert stuck_counts() == {ended.table.id: 4}
    assert stuck_counts([ended.table.id + 1]) == {}
    ended.turn()
    task = Task.objects.filter(state=TaskState.OPEN).first()
    Chunk.objects.update(task=None, analysis={**Chunk.objects.first().analysis, "shared": [key]})
    ended.service.clock.now_ms += 2 * STUCK_MS
    TaskSegment.objects.get_or_create(task=task, segment_id=key)
    assert stuck_counts() == {}


def text_of(operator: Client, page: str) -> str:
    cache.clear()  # the front page keeps the numbers of tables for some seconds
    return operator.get(page).content.decode().replace("\xa0", " ")


@pytest.mark.parametrize(
    ("told", "word"),
    [
        ({}, "needs attention"),
        ({"is_paused": True}, "paused"),
        ({"publish_error": "no answer"}, "not published"),
        ({"refusal": "overlapping files"}, "refused"),
    ],
)
def test_a_table_stands_alike_wherever_it_is_shown(
    ended: World, operator: Client, told: dict[str, object], word: str
) -> None:
    """A file of it is kept out, and tasks are open: the page showed "needs an operator", the command "at work"."""
    ended.turn()
    DataSource.objects.update(**told)
    [of_json] = json.loads(run("status", "--json"))["tables"]
    assert of_json["state"] == word
    assert word in run("status")
    for page in (
        *("/admin/", reverse("admin:tables_datasource_changelist")),
        reverse("admin:tables_datasource_change", args=[ended.table.id]),
    ):
        assert word in text_of(operator, page), page


def test_a_table_without_trouble_is_compacting_and_then_compacted(world: World) -> None:
    world.add(*put_hours(world.store, 0, hours=range(6)))
    world.turn()
    world.publish()
    assert json.loads(run("status", "--json"))["tables"][0]["state"] == "compacting"
    world.work_off()
    world.publish()
    assert json.loads(run("status", "--json"))["tables"][0]["state"] == "compacted"
