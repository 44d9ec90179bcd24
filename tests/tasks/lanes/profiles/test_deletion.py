"""The control task that deletes the objects of replaced blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.storage import ObjectStore, open_store
from tasks.beat import app
from tasks.lanes.profiles.deletion import delete_tombstoned_objects
from tasks.lanes.profiles.manifest import DELETE_OBJECTS_TASK
from tests.webadmin.service import Service
from webadmin.lanes.profiles.models import Block, Tombstone
from webadmin.lanes.profiles.states import BlockState

LEASE_SECONDS = 15


@pytest.fixture
def store(tmp_path: Path, settings: Any) -> ObjectStore:
    """The store of the settings, empty."""
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    return open_store(settings.OBJECT_STORE_URL)


def compact_once(service: Service, store: ObjectStore) -> None:
    """Add a full batch of segments, merge them, and put an object under every key of the index."""
    service.add_segments(20)
    worker = service.worker()
    (spec,) = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    for key in Block.objects.values_list("object_key", flat=True):
        store.put(key, b"object")


def run_until_due(service: Service) -> None:
    """Run the task again and again while time passes: on an idle schedule it moves command time by a lease at most."""
    for _ in range(15 * 60 // LEASE_SECONDS + 2):
        service.clock.now_ms += LEASE_SECONDS * 1000
        delete_tombstoned_objects()


def test_objects_of_replaced_blocks_go_when_their_delay_is_over(real_service: Service, store: ObjectStore) -> None:
    compact_once(real_service, store)
    delete_tombstoned_objects()
    objects = [info for info in store.list() if not info.key.startswith("lineage/")]
    assert len(objects) == 21, "nothing is deleted before the delay"
    run_until_due(real_service)
    left = {info.key for info in store.list() if not info.key.startswith(("lineage/", "log/"))}
    assert left == set(Block.objects.live().values_list("object_key", flat=True))
    assert len(left) == 1
    assert Block.objects.filter(state=BlockState.DELETED).count() == 20
    assert not Tombstone.objects.filter(deleted_at_ms=None).exists()


def test_running_it_twice_is_harmless(real_service: Service, store: ObjectStore) -> None:
    compact_once(real_service, store)
    run_until_due(real_service)
    before = real_service.dump()
    delete_tombstoned_objects()
    assert real_service.dump() == before


def test_a_control_worker_knows_the_task_under_the_name_that_beat_sends() -> None:
    app.loader.import_default_modules()
    assert DELETE_OBJECTS_TASK in app.tasks
