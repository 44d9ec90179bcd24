"""Objects of replaced blocks: never deleted early, deleted once, and kept on the list when the store fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import IntegrityError, transaction

from engine.storage import StorageError, open_store
from tests.webadmin.service import Service, check_invariants
from webadmin.lanes.profiles.models import Block, Dataset, Tombstone
from webadmin.lanes.profiles.services import delete_tombstoned_objects
from webadmin.lanes.profiles.services.delete_objects import (
    RETRY_MAX_MS,
    RETRY_MS,
    confirm_deleted,
    dispatch,
    note_failures,
)
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
    assert {info.key for info in store.list("segments/")} == keys
    assert sum(outcome.deleted for outcome in delete_when_due(service, store, 60)) == 20
    assert list(store.list("segments/")) == []
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
    left = Tombstone.objects.get(deleted_at_ms=None)
    assert (left.attempts, left.dispatched_at_ms is not None) == (1, True)
    assert "no answer" in left.last_error
    store.delete = delete
    assert delete_tombstoned_objects(store=store).deleted == 0, "a stubborn object is not asked for at every run"
    assert sum(outcome.deleted for outcome in delete_when_due(service, store, 3 * RETRY_MS / 1000)) == 1
    assert delete_tombstoned_objects(store=store).deleted == 0


def test_deletions_dispatched_by_a_process_that_died_are_retried(service: Service, tmp_path: Path) -> None:
    Limits.objects.update(cleanup_delay_seconds=0)
    store = open_store(str(tmp_path))
    completed_job(service, store)
    service.clock.advance(1)
    dispatch(list(Tombstone.objects.values_list("id", flat=True)), at_ms=service.clock.now_ms)
    assert delete_tombstoned_objects(store=store).deleted == 20
    assert set(Tombstone.objects.values_list("attempts", flat=True)) == {2}


def test_waits_between_attempts_grow_to_a_bound(service: Service, tmp_path: Path) -> None:
    completed_job(service, open_store(str(tmp_path)))
    first = Tombstone.objects.first().id
    waits = []
    for _ in range(12):
        dispatch([first], at_ms=0)
        note_failures({first: "no answer"}, at_ms=0)
        waits.append(Tombstone.objects.get(id=first).retry_at_ms)
    assert waits[:3] == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS]
    assert waits == sorted(waits)
    assert waits[-1] == RETRY_MAX_MS


def tombstones_aged(service: Service, ages_ms: list[int]) -> list[Tombstone]:
    """Give the first tombstones these ages since they became eligible; the others are not eligible yet."""
    rows = list(Tombstone.objects.order_by("id"))
    Tombstone.objects.update(eligible_at_ms=service.clock.now_ms + 10**9)
    for row, age_ms in zip(rows, ages_ms, strict=False):
        Tombstone.objects.filter(id=row.id).update(eligible_at_ms=service.clock.now_ms - age_ms)
    return rows


@pytest.mark.row("R13")
def test_only_tombstones_strictly_older_than_the_delay_are_due(service: Service, tmp_path: Path) -> None:
    completed_job(service, open_store(str(tmp_path)))
    rows = tombstones_aged(service, [2, 1, 0, -1, -2])
    assert list(Tombstone.objects.due(service.clock.now_ms)) == rows[:2]


@pytest.mark.row("P17")
def test_a_tombstone_of_exactly_the_delay_is_not_due(service: Service, tmp_path: Path) -> None:
    completed_job(service, open_store(str(tmp_path)))
    row = Tombstone.objects.first()
    assert row.eligible_at_ms == row.created_at_ms + 15 * 60 * 1000
    assert not Tombstone.objects.due(row.eligible_at_ms).exists()
    assert Tombstone.objects.due(row.eligible_at_ms + 1).count() == 20


@pytest.mark.row("R11")
def test_confirming_twice_is_harmless(service: Service, tmp_path: Path) -> None:
    completed_job(service, open_store(str(tmp_path)))
    ids = list(Tombstone.objects.values_list("id", flat=True)[:2])
    confirm_deleted(ids, at_ms=7)
    before = service.dump()
    confirm_deleted(ids, at_ms=8)
    assert service.dump() == before


@pytest.mark.row("R10", "R15")
def test_a_block_has_one_tombstone_of_its_own(service: Service, tmp_path: Path) -> None:
    completed_job(service, open_store(str(tmp_path)))
    blocks = list(Tombstone.objects.values_list("block_id", flat=True))
    assert len(blocks) == len(set(blocks)) == 20
    with pytest.raises(IntegrityError), transaction.atomic():
        Tombstone.objects.create(block_id=blocks[0], command_index=1, created_at_ms=1, eligible_at_ms=1)


def test_the_object_of_a_live_block_is_never_due(service: Service, tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    [ulid] = service.add_segments(1)
    block = Block.objects.get(ulid=ulid)
    Tombstone.objects.create(block=block, command_index=1, created_at_ms=0, eligible_at_ms=0)
    store.put(block.object_key, b"data")
    assert delete_tombstoned_objects(store=store).deleted == 0
    assert store.get(block.object_key) == b"data"


def test_an_idle_schedule_still_comes_to_delete(service: Service, tmp_path: Path) -> None:
    Limits.objects.update(cleanup_delay_seconds=60)
    store = open_store(str(tmp_path))
    completed_job(service, store)
    runs = 0
    while not delete_tombstoned_objects(store=store).deleted:
        service.clock.advance(60)
        runs += 1
        assert runs < 10
