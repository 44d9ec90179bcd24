"""Fixtures of tables: a folder of Parquet files, and the table it is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.schedule.model import HOLDING_STATES, LIVE_STATES, JobState
from engine.storage import ObjectStore, open_store
from tests.webadmin.lanes.tables.fake_node import FakeNode
from tests.webadmin.lanes.tables.parquet_files import day
from tests.webadmin.service import Service
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.tables.models import Chunk, DataSource, Segment
from webadmin.lanes.tables.services.publish_manifest import publish_manifest
from webadmin.lanes.tables.services.read_files import OfferedFile
from webadmin.lanes.tables.services.run_cycle import CycleReport, run_source_cycle
from webadmin.lanes.tables.services.sources import NewTable, alter_table, create_table
from webadmin.lanes.tables.services.take_files import Taken, take_files
from webadmin.lanes.tables.states import RegistrationMode, SegmentState, TaskState
from webadmin.lanes.tables.task_models import Task
from webadmin.schedule.models import Job, LogHead

CONTEXT = ActionContext(actor="test", why="a test")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "events"))


@pytest.fixture
def new_table(store: ObjectStore) -> NewTable:
    return NewTable(tenant="acme", name="events", url=store.url, time_column="ts")


@pytest.fixture
def table(service: Service, new_table: NewTable) -> DataSource:
    """A table by day, two months after its first day."""
    service.clock.now_ms = day(60)
    return create_table(new_table, context=CONTEXT)


@pytest.fixture
def node(service: Service) -> FakeNode:
    return FakeNode(service.worker())


@pytest.fixture
def world(table: DataSource, store: ObjectStore, node: FakeNode, service: Service) -> World:
    """A table with its controller and one node."""
    return World(table, store, node, service)


@dataclass
class World:
    """A table, the folder it is in, and who works on it."""

    table: DataSource
    store: ObjectStore
    node: FakeNode
    service: Service

    def add(self, *paths: str, **told: Any) -> Taken:
        """Register files; all of them must come in."""
        source = DataSource.objects.select_related("policy").get(id=self.table.id)
        offered = [OfferedFile(path=path) for path in paths]
        told.setdefault("mode", RegistrationMode.APPEND)
        taken = take_files(source, self.store, offered, context=CONTEXT, **told)
        assert {answer.status for answer in taken.answers} <= {"registered", "known"}, taken.answers
        return taken

    def turn(self) -> CycleReport:
        """Take a turn of the controller."""
        return run_source_cycle(self.table)

    def publish(self) -> None:
        """Show readers what the database says."""
        publish_manifest(self.table, self.store)

    def work_off(self, rounds: int = 50) -> int:
        """Let controller and node work until nothing is left; return how many jobs there were."""
        count = 0
        for _ in range(rounds):
            report = self.turn()
            specs = self.node.take(10)
            if not (specs or report.created or report.started):
                return count
            for spec in specs:
                self.node.finish(spec)
            count += len(specs)
        raise AssertionError("the table does not come to rest")

    def set(self, **settings: Any) -> None:
        """Change the policy."""
        alter_table(self.table, settings, context=CONTEXT)

    def chunk(self, number: int) -> Chunk:
        """Return the chunk of a day."""
        return Chunk.objects.get(source=self.table, start_ms=day(number))


def check_timelines() -> None:
    """Assert what must hold of every table between any two statements of anyone."""
    assert LogHead.objects.get().live_job_count == Job.objects.filter(state__in=LIVE_STATES).count()
    visible = Segment.objects.filter(state=SegmentState.VISIBLE)
    entries = sorted(set(visible.filter(is_tombstone=False).values_list("source", "start_ms", "end_ms", "version")))
    for before, after in itertools.pairwise(entries):
        assert before[0] != after[0] or before[2] <= after[1], "entries never overlap"
    for task in Task.objects.select_related("job"):
        assert (task.state == TaskState.OPEN) == (task.job.state in HOLDING_STATES), "an open task has a job"
        assert (task.state == TaskState.OPEN) == task.chunks.filter(is_open=True).exists()
    for chunk in Chunk.objects.exclude(task=None).select_related("task"):
        assert chunk.task is not None
        assert chunk.task.state == TaskState.OPEN
        assert chunk.task.chunks.filter(start_ms=chunk.start_ms, is_open=True).exists()
    for source in DataSource.objects.all():
        assert source.published <= source.sequence
        running = Task.objects.filter(source=source, state=TaskState.OPEN).exclude(admitted_at_ms=None)
        policy = source.policy
        assert not policy.running_max or running.count() <= policy.running_max
        assert sum(task.cost for task in running) <= policy.running_cost_max or running.count() == 1
    for waiting in Task.objects.filter(state=TaskState.OPEN, admitted_at_ms=None):
        assert waiting.job.state in (JobState.BLOCKED, JobState.PARKED)
