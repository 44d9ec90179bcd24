"""Dead letters: recovered in the order of their ids, one bad one never blocking the rest, and an operator's say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import block_key, dead_letter_key
from engine.storage import ObjectNotFound, ObjectStore, StorageError, open_store
from tasks.lanes.profiles.dead_letters import recover_dead_letters
from tests.block_factory import block_meta, ulid
from tests.webadmin.service import Service, check_invariants
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.profiles.errors import LetterGone
from webadmin.lanes.profiles.models import Block, DeadLetter
from webadmin.lanes.profiles.services import recover_letters as recovery
from webadmin.lanes.profiles.services.recover_letters import recover_letters
from webadmin.lanes.profiles.services.settle_letters import discard_letter, retry_letters

HOUR_MS = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}")


def write(store: ObjectStore, service: Service, number: int, *, hours: int = 0, shard: int = 1, **options: Any) -> str:
    """Do what a writer without an index does: the object, and the letter beside it. Return the letter's key."""
    meta = block_meta(ulid(service.clock.now_ms - hours * HOUR_MS, number), shard=shard, **options)
    store.put(block_key(shard, meta.tenant, meta.compaction_level, meta.id), bytes(meta.size))
    key = dead_letter_key(shard, meta.tenant, meta.id)
    store.put(key, encode_metadata(meta))
    return key


def keys(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list("dlq/")]


@pytest.mark.row("D1")
def test_letters_are_recovered_in_the_order_of_their_ids(service: Service, store: ObjectStore) -> None:
    for number, (shard, hours) in enumerate([(2, 1), (1, 3), (2, 2)]):
        write(store, service, number, shard=shard, hours=hours)
    assert recover_letters(store=store).recovered == 3
    ids = list(Block.objects.order_by("id").values_list("ulid", flat=True))
    assert ids == sorted(ids)
    assert len(ids) == 3
    assert keys(store) == []
    check_invariants()


@pytest.mark.row("D2", "D3")
@pytest.mark.parametrize("case", ["d2: not to be had", "d3: cancelled"])
def test_an_unavailable_database_ends_the_sweep_after_one_attempt(
    service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    write(store, service, 1)
    write(store, service, 2)
    before, attempts = keys(store), []

    def away(*arguments: Any, **options: Any) -> None:
        attempts.append(1)
        raise OperationalError(case)

    monkeypatch.setattr(recovery, "add_blocks", away)
    with pytest.raises(OperationalError):
        recover_letters(store=store)
    assert (keys(store), len(attempts)) == (before, 1)


@pytest.mark.row("D5")
def test_an_empty_letter_is_deleted_and_the_next_recovered(service: Service, store: ObjectStore) -> None:
    store.put(dead_letter_key(1, "", ulid(service.clock.now_ms, 1)), b"")
    write(store, service, 2)
    outcome = recover_letters(store=store)
    assert (outcome.recovered, outcome.empty, keys(store)) == (1, 1, [])


@pytest.mark.row("D6", "D7")
@pytest.mark.parametrize(
    ("error", "code"),
    [(None, "read_error"), (StorageError("get", "key", "reset"), "storage_error")],
    ids=["d6: truncated", "d7: transient"],
)
def test_an_unreadable_letter_is_kept_and_the_next_recovered(
    service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, error: StorageError | None, code: str
) -> None:
    bad = write(store, service, 1)
    write(store, service, 2)
    whole = store.get

    def get(key: str) -> bytes:
        if key == bad and error:
            raise error
        return whole(key)[:-1] if key == bad else whole(key)

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", get)
        outcome = recover_letters(store=store)
    assert (outcome.recovered, outcome.kept, keys(store)) == (1, [(bad, code)], [bad])
    assert recover_letters(store=store).recovered == 1
    row = DeadLetter.objects.get()
    assert (row.state, row.attempts, row.code) == ("recovered", 1, "")


@pytest.mark.row("D4", "D8")
@pytest.mark.parametrize(
    "key",
    [
        "dlq/1",
        "dlq/1/anonymous/NOT-A-ULID/meta.pb",
        "dlq/1/anonymous/01J2VJQPYDC160REPAD2VN88XN/block.bin",
        "dlq/1/anonymous/01J2VJQPYDC160REPAD2VN88XN",
        "dlq/x/anonymous/01J2VJQPYDC160REPAD2VN88XN/meta.pb",
        "dlq/1/a b/01J2VJQPYDC160REPAD2VN88XN/meta.pb",
        "dlq/1/anonymous/01J2VJQPYDC160REPAD2VN88XN/more/meta.pb",
    ],
)
def test_other_objects_are_left_alone(service: Service, store: ObjectStore, key: str) -> None:
    store.put(key, b"x")
    letter = write(store, service, 1, shard=2)
    outcome = recover_letters(store=store)
    assert (outcome.recovered, outcome.stray, keys(store)) == (1, [key], [key])
    assert letter not in keys(store)


def test_bad_letters_stay_with_their_reason_and_the_others_are_recovered(service: Service, store: ObjectStore) -> None:
    now = service.clock.now_ms
    undecodable = dead_letter_key(1, "", ulid(now, 1))
    store.put(undecodable, b"\xff\xff")
    missing = write(store, service, 2)
    store.delete(block_key(1, "", 0, ulid(now, 2)))
    moved = dead_letter_key(9, "", ulid(now, 3))
    store.put(moved, encode_metadata(block_meta(ulid(now, 3))))
    old = write(store, service, 4, hours=24 * 8)
    differing = write(store, service, 5)
    service.add(block_meta(ulid(now, 5), datasets=[("acme", "other")]))
    good = write(store, service, 6)
    outcome = recover_letters(store=store)
    assert outcome.recovered == 1
    assert dict(outcome.kept) == {
        undecodable: "bad_object",
        missing: "object_not_found",
        moved: "bad_key",
        old: "id_too_old",
        differing: "differing_content",
    }
    assert good not in keys(store)
    recover_letters(store=store)
    assert set(DeadLetter.objects.values_list("attempts", "state")) == {(2, "waiting")}


def test_a_letter_whose_block_is_known_is_done(service: Service, store: ObjectStore) -> None:
    write(store, service, 1)
    service.add(block_meta(ulid(service.clock.now_ms, 1)))
    before = Block.objects.count()
    assert (recover_letters(store=store).recovered, Block.objects.count(), keys(store)) == (1, before, [])


def test_only_the_oldest_are_tried_when_there_are_many(service: Service, store: ObjectStore) -> None:
    letters = [write(store, service, number) for number in range(5)]
    assert recover_letters(store=store, limit=2).recovered == 2
    assert keys(store) == sorted(letters[2:])


def test_bad_ones_that_fill_a_sweep_do_not_hide_younger_ones(service: Service, store: ObjectStore) -> None:
    bad, good = [write(store, service, number) for number in range(2)], write(store, service, 2)
    for number in range(2):
        store.delete(block_key(1, "", 0, ulid(service.clock.now_ms, number)))
    assert recover_letters(store=store, limit=2).recovered == 0
    assert recover_letters(store=store, limit=2).recovered == 1
    assert good not in keys(store)
    assert keys(store) == sorted(bad)


def test_an_operator_retries_one_now(service: Service, store: ObjectStore) -> None:
    missing, other = write(store, service, 1), write(store, service, 2)
    object_key = block_key(1, "", 0, ulid(service.clock.now_ms, 1))
    data = store.get(object_key)
    store.delete(object_key)
    recover_letters(store=store)
    store.put(object_key, data)
    assert retry_letters(keys=[missing], store=store, actor="ann").recovered == 1
    assert retry_letters(keys=[missing, other], store=store, actor="ann").recovered == 0
    assert AuditEntry.objects.filter(actor="ann", action="retry_dead_letters").count() == 2
    assert DeadLetter.objects.get().state == "recovered"


def test_a_letter_is_discarded_once_with_a_reason(service: Service, store: ObjectStore) -> None:
    key = dead_letter_key(1, "", ulid(service.clock.now_ms, 1))
    store.put(key, b"\xff\xff")
    recover_letters(store=store)
    assert discard_letter(key=key, reason="half a message", store=store, actor="ann")
    assert not discard_letter(key=key, reason="again", store=store, actor="ann")
    row = DeadLetter.objects.get()
    assert (row.state, row.reason, keys(store)) == ("discarded", "discarded by ann: half a message", [])
    entry = AuditEntry.objects.get(action="discard_dead_letter")
    assert (entry.target, entry.detail) == (key, {"reason": "half a message"})
    with pytest.raises(LetterGone):
        discard_letter(key="dlq/2/anonymous/x/meta.pb", reason="", store=store, actor="ann")


def test_the_control_task_recovers_letters(service: Service, tmp_path: Path, settings: Any) -> None:
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    store = open_store(settings.OBJECT_STORE_URL)
    letter = write(store, service, 1)
    recover_dead_letters()
    assert Block.objects.count() == 1
    with pytest.raises(ObjectNotFound):
        store.get(letter)
