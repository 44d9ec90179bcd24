"""Rows of the block queue and the planner that need the database (sheet, sections 14.2 and 14.3)."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from tests.webadmin.service import Service, check_invariants
from webadmin.lanes.profiles.level_models import LevelQueue

PLACES = (
    "webadmin.lanes.profiles.services.insert_blocks.insert_rows",
    "webadmin.lanes.profiles.services.insert_blocks.insert_new_rows",
    "webadmin.lanes.profiles.planning.level_queues.update_rows",
)
"""Where the writes of an add can fail: rows of blocks and datasets, the ledger, the sums of the queue."""


@pytest.mark.row("Q17")
@pytest.mark.parametrize("place", PLACES)
def test_a_write_that_fails_is_an_error_and_nothing_is_queued(
    service: Service, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    service.add_segments(1)
    before = service.dump()

    def fail(*arguments: object, **options: object) -> None:
        raise OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(place, fail)
        with pytest.raises(OperationalError, match="full"):
            service.add_segments(1)
    assert service.dump() == before
    check_invariants()
    service.add_segments(1)
    assert LevelQueue.objects.get().block_count == 2


@pytest.mark.row("Q19")
def test_a_partial_batch_becomes_a_job_without_a_further_arrival(service: Service) -> None:
    service.add_segments(3)
    worker = service.worker()
    taken: list[tuple[int, int]] = []
    for second in range(0, 60, 5):
        taken += [(second, len(spec.sources)) for spec in worker.take()]
        service.clock.advance(5)
    assert taken == [(40, 3)]
    check_invariants()
