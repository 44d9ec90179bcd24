"""Objects of replaced blocks: never deleted early, deleted once, and kept on the list when the store fails."""

from __future__ import annotations

from pathlib import Path

from engine.storage import StorageError, open_store
from tests.webadmin.service import Service, check_invariants
from webadmin.index.models import Block, Dataset, Tombstone
from webadmin.index.services import delete_tombstoned_objects
from webadmin.schedule.models import Limits


def completed_job(service: Service, store) -> None:
    """Merge twenty segments whose objects exist."""
    service.add_segments(20)
    for key in Block.objects.values_list("object_key", flat=True):
        store.put(key, b"data")
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)


def delete_when_due(service: Service, store, seconds: float):
    """Let command time pass in the steps that it takes when nothing else happens."""
    outcomes = []
    while seconds > 0:
        step = min(seconds, 14.0)
        service.clock.advance(step)
        seconds -= step
        service.worker().poll(capacity=0)
        outcomes.append(delete_tombstoned_objects(store=store))
    return outcomes


def test_objects_go_after_the_delay_and_not_before(service: Service, tmp_path: Path) -> None:
    Limits.objects.update(cleanup_delay_seconds=60)
    store = open_store(str(tmp_path))
    completed_job(service, store)
    keys = set(Block.objects.filter(state="replaced").values_list("object_key", flat=True))
    assert all(outcome.deleted == 0 for outcome in delete_when_due(service, store, 60))
    assert {info.key for info in store.list()} == keys
    assert sum(outcome.deleted for outcome in delete_when_due(service, store, 60)) == 20
    assert list(store.list()) == []
    assert service.states() == {"deleted": 20, "queued": 1}
    assert not Tombstone.objects.filter(deleted_at_ms=None).exists()
    assert not Dataset.objects.filter(block__state="deleted").exists()
    assert not Block.objects.filter(state="deleted").exclude(metadata=b"").exists()
    check_invariants()


def test_an_object_that_the_store_does_not_delete_is_tried_again(service: Service, tmp_path: Path) -> None:
    Limits.objects.update(cleanup_delay_seconds=0)
    store = open_store(str(tmp_path))
    completed_job(service, store)
    service.clock.advance(1)
    stubborn = Block.objects.filter(state="replaced").first().object_key
    delete = store.delete

    def failing(key: str) -> None:
        if key == stubborn:
            raise StorageError("delete", key, "no answer")
        delete(key)

    store.delete = failing
    outcome = delete_tombstoned_objects(store=store)
    assert (outcome.deleted, outcome.failed) == (19, (stubborn,))
    store.delete = delete
    assert delete_tombstoned_objects(store=store).deleted == 1
    assert delete_tombstoned_objects(store=store).deleted == 0


def test_an_idle_schedule_still_comes_to_delete(service: Service, tmp_path: Path) -> None:
    Limits.objects.update(cleanup_delay_seconds=60)
    store = open_store(str(tmp_path))
    completed_job(service, store)
    runs = 0
    while not delete_tombstoned_objects(store=store).deleted:
        service.clock.advance(60)
        runs += 1
        assert runs < 10
