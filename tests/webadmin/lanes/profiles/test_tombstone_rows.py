"""What stands in place of tombstones that travel inside jobs: deletion asks for no job, no level, no batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.storage import open_store
from tests.webadmin.lanes.profiles.test_delete_objects import completed_job
from tests.webadmin.service import Service
from webadmin.lanes.profiles.models import Block, Tombstone
from webadmin.lanes.profiles.services import delete_tombstoned_objects
from webadmin.schedule.models import Job, Limits


@pytest.mark.row("P14")
def test_all_due_tombstones_are_deleted_at_once_with_one_request_each(service: Service, tmp_path: Path) -> None:
    Limits.objects.update(cleanup_delay_seconds=0)
    store = open_store(str(tmp_path))
    completed_job(service, store)
    service.add_segments(20)
    service.worker().take()  # the job of this poll carries no tombstone
    service.clock.advance(1)
    assert delete_tombstoned_objects(store=store).deleted == 20
    assert set(Tombstone.objects.values_list("attempts", flat=True)) == {1}
    assert delete_tombstoned_objects(store=store).deleted == 0


@pytest.mark.row("P15")
def test_deletion_runs_share_due_tombstones_oldest_first(service: Service, tmp_path: Path) -> None:
    Limits.objects.update(cleanup_delay_seconds=0)
    store = open_store(str(tmp_path))
    completed_job(service, store)
    service.clock.advance(1)
    sizes = [delete_tombstoned_objects(store=store, limit=8).deleted for _ in range(4)]
    assert sizes == [8, 8, 4, 0]
    assert set(Tombstone.objects.values_list("attempts", flat=True)) == {1}


@pytest.mark.row("P16")
@pytest.mark.parametrize("level", [0, 2])
def test_the_level_of_the_jobs_on_the_schedule_makes_no_difference(
    service: Service, tmp_path: Path, level: int
) -> None:
    Limits.objects.update(cleanup_delay_seconds=0)
    store = open_store(str(tmp_path))
    completed_job(service, store)
    service.add_segments(20)
    service.worker().take()
    Job.objects.filter(state="leased").update(level=level)
    service.clock.advance(1)
    assert delete_tombstoned_objects(store=store).deleted == 20
    assert Block.objects.filter(state="owned").count() == 20, "its sources are nobody's tombstones"
