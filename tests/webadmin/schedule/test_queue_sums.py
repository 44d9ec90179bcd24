"""A queue that only gets new blocks has its sums worked out from those before: they are those of its blocks."""

from __future__ import annotations

import pytest
from django.db import transaction

from tests.webadmin.service import Service, check_invariants
from webadmin.lanes.profiles.level_models import LevelPolicy, LevelQueue
from webadmin.lanes.profiles.planning.level_policies import LevelPolicies
from webadmin.lanes.profiles.planning.level_queues import QueueChanges, resettle_queues


def assert_sums_are_those_of_the_blocks() -> None:
    before = list(LevelQueue.objects.order_by("id").values())
    with transaction.atomic():
        resettle_queues(LevelQueue.objects.all(), LevelPolicies())
    assert list(LevelQueue.objects.order_by("id").values()) == before


@pytest.mark.parametrize("bytes_max", [0, 1000])
@pytest.mark.parametrize("steps", [(1, 5, 13, 1, 30, 2), (20, 1), (19, 2), (45,)])
def test_a_growing_queue_has_the_sums_of_its_blocks(service: Service, steps: tuple[int, ...], bytes_max: int) -> None:
    assert LevelPolicy.objects.get(level=0).blocks_max == 20
    LevelPolicy.objects.update(bytes_max=bytes_max)
    for count in steps:
        service.clock.advance(1)
        service.add_segments(count)
        assert_sums_are_those_of_the_blocks()
    service.add_segments(1)  # at the same time as those before
    assert_sums_are_those_of_the_blocks()


def test_a_queue_that_loses_and_gets_blocks_has_the_sums_of_its_blocks(service: Service) -> None:
    service.add_segments(45)
    worker = service.worker()
    for _ in range(2):
        service.clock.advance(1)
        [spec] = worker.take()
        service.add_segments(3)
        worker.poll(worker.success(spec.job), capacity=0)
        assert_sums_are_those_of_the_blocks()
    check_invariants()


def test_what_came_back_to_a_queue_is_not_behind_all_others() -> None:
    changes = QueueChanges()
    changes.add_fresh(1, 10, arrived_at_ms=7)
    changes.add_fresh(2, 10, arrived_at_ms=7)
    changes.add(2, 1, 10)
    assert (changes.fresh_ms(1), changes.fresh_ms(2), changes.fresh_ms(3)) == (7, None, None)
