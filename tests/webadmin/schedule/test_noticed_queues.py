"""A queue is noticed only while it has blocks: otherwise its tenant could stay idle for ever."""

from __future__ import annotations

import pytest
from django.db import transaction

from tests.webadmin.service import FakeWorker, Service, check_invariants
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.planning.level_policies import LevelPolicies
from webadmin.lanes.profiles.planning.level_queues import QueueChanges, settle_queues
from webadmin.lanes.profiles.planning.ready_marks import mark_active_tenants
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.command_log import read_time
from webadmin.schedule.fairness_models import TenantShare

SEGMENTS = ("profiles", "")


@pytest.fixture
def worker(service: Service) -> FakeWorker:
    return service.worker()


def test_what_comes_into_a_queue_that_another_poll_has_emptied_is_planned(service: Service, worker: FakeWorker) -> None:
    """Two polls find a queue ready; one takes its blocks, the other only had it in view and is applied later."""
    service.add_segments(20)
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    queue = LevelQueue.objects.get(level=0)
    with transaction.atomic():
        settle_queues(QueueChanges(), LevelPolicies(), served_at_ms=read_time().now_ms, noticed=[queue.id])
        mark_active_tenants([SEGMENTS])
    assert not LevelQueue.objects.filter(block_count=0, is_marked_ready=True).exists()
    service.add_segments(20)
    assert len(worker.take()) == 1
    check_invariants()


def test_what_comes_into_a_queue_whose_blocks_were_removed_is_planned(service: Service, worker: FakeWorker) -> None:
    service.add_segments(40)
    worker.take()
    queue = LevelQueue.objects.get(level=0)
    assert (queue.block_count, queue.is_marked_ready) == (20, True)
    changes = QueueChanges()
    changes.add(queue.id, -20, -queue.byte_count)
    with transaction.atomic():
        Block.objects.filter(queue=queue).update(state=BlockState.DROPPED, queue=None, removed_command_index=1)
        settle_queues(changes, LevelPolicies())
        mark_active_tenants([SEGMENTS])
    assert not TenantShare.objects.get(lane="profiles", tenant="").is_awake
    service.add_segments(20)
    assert len(worker.take()) == 1
