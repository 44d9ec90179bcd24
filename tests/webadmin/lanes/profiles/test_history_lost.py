"""The database goes back in time while the bucket does not: nothing is deleted until the index was repaired, and then
every part of every segment is in exactly one live block again."""

from __future__ import annotations

import io
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import block_key, dead_letter_key
from engine.storage import ObjectInfo, ObjectStore, StorageError, open_store
from engine.storage.local import LocalStore
from tasks.control.history import write_log_position
from tests.block_factory import block_meta, ulid
from tests.webadmin.lanes.profiles.test_bucket_and_index import add, age, compact, make_due, orphan, put
from tests.webadmin.lanes.profiles.test_restore import EVENTS, History
from tests.webadmin.probes import probe
from tests.webadmin.service import Service, check_invariants, rolled_back
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.models import Block, DeadLetter, LetterState, LineageMark, Tombstone
from webadmin.lanes.profiles.services.compare_bucket import LETTERED, MERGED_SEGMENT, UNKNOWN_SEGMENT, sweep_orphans
from webadmin.lanes.profiles.services.delete_objects import delete_tombstoned_objects
from webadmin.lanes.profiles.services.rebuild_index import rebuild_index
from webadmin.lanes.profiles.services.record_lineage import record_lineage
from webadmin.lanes.profiles.services.recover_letters import recover_letters
from webadmin.progress.services import count_log
from webadmin.schedule.command_log import INDEX_MARGIN, continue_log, take_head
from webadmin.schedule.errors import LogBehind
from webadmin.schedule.log_position import LogPosition, read_positions
from webadmin.schedule.models import AheadPosition, Command, PositionMark
from webadmin.schedule.services.guard_deletions import allow_deletions

DAY_MS = 86_400_000


@pytest.fixture
def own_store(settings: Any) -> Any:
    """Django's settings, under a name that hypothesis has not."""
    return settings


@pytest.fixture
def store(tmp_path: Path, settings: Any) -> ObjectStore:
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    return open_store(settings.OBJECT_STORE_URL)


def last_index() -> int:
    return Command.objects.order_by("-index").values_list("index", flat=True)[0]


def positions(store: ObjectStore) -> dict[str, int]:
    return {position.epoch: position.command_index for position in read_positions(store)}


def lose_position(service: Service, store: ObjectStore) -> int:
    """Add a segment, write the position, and let the database forget both; return the position."""
    with rolled_back():
        add(service, store, 1)
        allow_deletions(store=store)
        return last_index()


def test_the_position_follows_the_log_under_one_epoch(service: Service, store: ObjectStore) -> None:
    allow_deletions(store=store)
    assert positions(store) == {}, "an empty log has none"
    add(service, store, 1)
    allow_deletions(store=store)
    [(epoch, index)] = positions(store).items()
    add(service, store, 1)
    write_log_position()
    assert positions(store) == {epoch: last_index()}
    assert last_index() > index


def test_a_log_behind_the_stored_position_continues_past_it_once_and_nothing_is_deleted(
    service: Service, store: ObjectStore
) -> None:
    add(service, store, 1)
    allow_deletions(store=store)
    lost = lose_position(service, store)
    with pytest.raises(LogBehind, match=rf"position {lost} of epoch .* fsck --repair"):
        allow_deletions(store=store)
    continued = last_index()
    assert continued >= max(lost + INDEX_MARGIN, service.clock.now_ms)
    write_log_position()
    assert last_index() == continued
    assert len(positions(store)) == 2
    assert lost in positions(store).values(), "what shows the loss is not overwritten"
    assert AheadPosition.objects.get().command_index == lost


def test_positions_of_earlier_epochs_go_before_the_entries_that_they_name(service: Service, store: ObjectStore) -> None:
    """Each restart of PostgreSQL begins an epoch; trimmed history must not look like a lost one."""
    add(service, store, 1)
    allow_deletions(store=store)
    first = last_index()
    with transaction.atomic():
        take_head()
        continue_log(first, actor="test", why="a restart")
    allow_deletions(store=store)
    assert len(positions(store)) == 2, "a process of the epoch before may still write"
    service.clock.advance(3601)
    add(service, store, 1)
    allow_deletions(store=store)
    assert positions(store) == {PositionMark.objects.get().epoch: last_index()}
    Command.objects.filter(index__lte=first).delete()
    allow_deletions(store=store)
    assert not AheadPosition.objects.exists()


def test_a_repair_that_could_not_read_everything_holds_deletions_up(
    service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(service, store, 1)
    lost = lose_position(service, store)
    original = LocalStore.get_range

    def failing(self: LocalStore, key: str, offset: int, length: int) -> bytes:
        if key.endswith("/block.bin"):
            raise StorageError("get_range", key, "the disk fails")
        return original(self, key, offset, length)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "get_range", failing)
        outcome = rebuild_index(store=store, actor="test")
    assert "could not be read" in outcome.unsettled
    with pytest.raises(LogBehind, match=str(lost)):
        allow_deletions(store=store)
    assert rebuild_index(store=store, actor="test").unsettled == ""
    allow_deletions(store=store)


def test_the_positions_of_another_installation_are_left_alone(
    service: Service, store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = open_store(f"file://{tmp_path_factory.mktemp('other')}")
    theirs = LogPosition(epoch="f" * 32, command_index=10**6, entry="e" * 32, written_at_ms=1)
    other.put(theirs.key, theirs.encode())
    rebuild_index(store=other, actor="test")
    assert positions(other) == {theirs.epoch: theirs.command_index}
    assert not AheadPosition.objects.exists()
    allow_deletions(store=store)


def test_another_entry_of_the_same_index_is_another_history(service: Service, store: ObjectStore) -> None:
    lost = lose_position(service, store)
    service.clock.advance(1)
    while not Command.objects.exists() or last_index() < lost:
        add(service, store, 1)
    with pytest.raises(LogBehind):
        allow_deletions(store=store)


def test_no_task_deletes_while_the_log_is_behind(service: Service, store: ObjectStore) -> None:
    add(service, store, 20)
    compact(service, store)
    make_due(service)
    orphan(store, service, 900)
    lose_position(service, store)
    before = {info.key for info in store.list() if not info.key.startswith(("log/", "lineage/"))}
    for delete in (
        lambda: delete_tombstoned_objects(store=store),
        lambda: sweep_orphans(store=store, actor="ann"),
        lambda: sweep_orphans(store=store, actor="ann", is_forced=True, has_segments=True),
    ):
        with pytest.raises(LogBehind):
            delete()
    assert "position" in sweep_orphans(store=store, actor="ann", is_dry_run=True).refusal
    assert {info.key for info in store.list() if not info.key.startswith(("log/", "lineage/"))} == before
    rebuild_index(store=store, actor="ann")
    assert delete_tombstoned_objects(store=store).deleted == 20


def test_a_position_that_cannot_be_read_stops_deletions(service: Service, store: ObjectStore) -> None:
    add(service, store, 20)
    compact(service, store)
    make_due(service)
    store.put("log/abc/position", b'{"version": 1, "epoch": "abd"}')
    with pytest.raises(Exception, match="log/abc/position"):
        delete_tombstoned_objects(store=store)
    assert Tombstone.objects.filter(deleted_at_ms=None).count() == 20


def test_the_front_page_and_progressz_name_it_and_the_command(service: Service, store: ObjectStore) -> None:
    count_log()
    client = Client()
    assert probe("/progressz").status_code == 200
    lost = lose_position(service, store)
    write_log_position()
    answer = probe("/progressz")
    assert (answer.status_code, answer.json()["blocker"]) == (503, "log_behind")
    assert f"position {lost}" in answer.json()["blockers"][0]["text"]
    assert "fsck --repair" in answer.json()["blockers"][0]["remedy"]
    client.force_login(User.objects.create_superuser("ann"))
    assert f"position {lost}" in client.get("/admin/").content.decode()
    call_command("fsck", "--repair", stdout=io.StringIO(), stderr=io.StringIO())
    assert probe("/progressz").status_code == 200
    assert f"position {lost}" not in client.get("/admin/").content.decode()


def test_a_segment_that_the_index_does_not_know_stays_and_is_adopted(service: Service, store: ObjectStore) -> None:
    add(service, store, 3)
    with rolled_back():
        [lost] = add(service, store, 1)
    key = block_key(1, "", 0, lost.id)
    age(store, key, service.clock.now_ms / 1000)
    service.clock.advance(3 * 86_400)
    outcome = sweep_orphans(store=store, actor="control:orphans", orphans_tolerated=0)
    assert (outcome.swept, outcome.kept) == ((), ((key, UNKNOWN_SEGMENT),))
    assert LineageMark.objects.get().unknown_segments == 1
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    assert "in the bucket not in the index: run fsck --repair" in client.get("/admin/").content.decode()
    out, err = io.StringIO(), io.StringIO()
    call_command("fsck", "--repair", stdout=out, stderr=err)
    assert "1 added" in err.getvalue()
    assert "0 unknown" in out.getvalue()
    assert Block.objects.live().filter(ulid=lost.id).exists()
    check_invariants()


def test_a_segment_that_a_record_names_as_merged_is_not_adopted(service: Service, store: ObjectStore) -> None:
    with rolled_back():
        metas = add(service, store, 20)
        compact(service, store)
        record_lineage(store=store)
        [result] = Block.objects.live().values_list("ulid", flat=True)
    rebuild_index(store=store, actor="ann")
    assert list(Block.objects.live().values_list("ulid", flat=True)) == [result]
    for meta in metas:
        age(store, block_key(1, "", 0, meta.id), service.clock.now_ms / 1000)
    service.clock.advance(3 * 86_400)
    kept = sweep_orphans(store=store, actor="ann").kept
    assert {reason for _, reason in kept} == {MERGED_SEGMENT}
    assert LineageMark.objects.get().unknown_segments == 0, "nobody has anything to do about them"
    assert len(sweep_orphans(store=store, actor="ann", has_segments=True).swept) == 20


ACME = ("add", ("acme",), ("acme",))
MERGED = [("merge",), ("report",)]
DONE = [ACME, *MERGED]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@example(before=[ACME], lost=[("merge",), ("report",), ("record",)], after=[])
@example(before=[ACME], lost=[("merge",), ("report",), ("delete", 4)], after=[])
@example(before=[ACME, ("merge",)], lost=[("report",), ("delete", 1), ACME], after=[])
@example(before=[ACME], lost=[("merge",), ("report",), ("record",)], after=[("merge",), ("report",)])
@example(before=[ACME], lost=[("merge",), ("report",), ("record",)], after=[("merge",), ("report",), ("record",)])
@example(before=[ACME], lost=[*MERGED, *MERGED, *MERGED, ("record",)], after=[("merge",), ("report",)])
@example(before=[ACME], lost=[*MERGED, *MERGED, *MERGED, ("record",)], after=[*MERGED, *MERGED, ("record",)])
@example(before=[ACME, *DONE], lost=[("merge",), ("report",), ("merge",), ("report",), ("delete", 4)], after=[ACME])
@given(
    before=st.lists(EVENTS, max_size=8),
    lost=st.lists(EVENTS, min_size=1, max_size=8),
    after=st.lists(EVENTS.filter(lambda event: event[0] in ("add", "merge", "report", "record")), max_size=5),
)
def test_whatever_was_lost_a_repair_finds_everything_once(
    service: Service,
    own_store: Any,
    tmp_path_factory: pytest.TempPathFactory,
    before: list[tuple[Any, ...]],
    lost: list[tuple[Any, ...]],
    after: list[tuple[Any, ...]],
) -> None:
    LevelPolicy.objects.update(blocks_max=2)

    def play(events: list[tuple[Any, ...]]) -> None:
        for name, *arguments in events:
            getattr(history, name)(*arguments)

    with rolled_back():
        bucket = str(tmp_path_factory.mktemp("bucket"))
        own_store.OBJECT_STORE_URL = bucket
        history = History(service, open_store(bucket))
        play([ACME, *before])
        allow_deletions(store=history.store)
        with rolled_back():
            play(lost)
            service.clock.advance(1)
        history.running.clear()  # their tokens are unknown
        with transaction.atomic():
            take_head()
            continue_log(0, actor="test", why="a server was promoted")  # results get names of their own
        play(after)
        rebuild_index(store=history.store, actor="ann")
        history.check()
        allow_deletions(store=history.store)
        rebuild_index(store=history.store, actor="ann")
        history.check()


def letter_of(store: ObjectStore, service: Service) -> tuple[str, str]:
    """Write an old segment and the letter beside it, as a writer without an index does; return both keys."""
    meta = put(store, block_meta(ulid(service.clock.now_ms, 900)))
    key = block_key(1, "", 0, meta.id)
    letter = dead_letter_key(1, "", meta.id)
    store.put(letter, encode_metadata(meta))
    age(store, key, service.clock.now_ms / 1000)
    service.clock.advance(3 * 86_400)
    return key, letter


def sweep_all(store: ObjectStore) -> dict[str, str]:
    return dict(sweep_orphans(store=store, actor="ann", has_segments=True).kept)


def test_a_letter_recovered_during_the_sweep_keeps_its_object(
    service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, letter = letter_of(store, service)
    listed = store.list

    def list_after_recovery(prefix: str = "") -> Any:
        if prefix == letter:
            monkeypatch.setattr(store, "list", listed)
            assert recover_letters(store=store).recovered == 1
        return listed(prefix)

    monkeypatch.setattr(store, "list", list_after_recovery)
    assert sweep_all(store) == {key: "the index knows its id"}
    assert store.head(key)
    assert not DeadLetter.objects.exists(), "one that was recovered at the first try leaves no row"


def test_a_recovery_under_way_saves_its_object_and_a_sweep_under_way_is_not_recovered(
    service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each comes between the last question of the other and what it does."""
    key, letter = letter_of(store, service)
    content = store.get(letter)
    store.delete(letter)
    recovery = import_module("webadmin.lanes.profiles.services.recover_letters")
    registered = recovery._register

    def register_while_swept(*arguments: Any) -> None:
        store.delete(letter)  # so that only the row tells the sweep
        kept.update(sweep_all(store))
        registered(*arguments)

    kept: dict[str, str] = {}
    store.put(letter, content)
    monkeypatch.setattr(recovery, "_register", register_while_swept)
    recover_letters(store=store)
    monkeypatch.setattr(recovery, "_register", registered)
    assert kept == {key: LETTERED}
    assert store.head(key)

    DeadLetter.objects.all().delete()
    deleted, found = store.delete, []

    def delete_while_recovered(target: str) -> None:
        if target == key:
            monkeypatch.setattr(store, "delete", deleted)
            store.put(letter, content)
            found.append(recover_letters(store=store))
        deleted(target)

    monkeypatch.setattr(store, "delete", delete_while_recovered)
    assert sweep_all(store) == {}
    assert [(outcome.recovered, outcome.kept) for outcome in found] == [(0, [(letter, "swept")])]
    assert not Block.objects.live().filter(object_key=key).exists()
    assert not DeadLetter.objects.filter(state=LetterState.SWEPT).exists()
    [(_, code)] = recover_letters(store=store).kept
    assert code == "object_not_found", "somebody sees that its object is gone"


def test_a_job_that_ends_during_the_sweep_keeps_its_result(
    service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.webadmin.lanes.profiles.test_bucket_and_index import take, write_results

    add(service, store, 20)
    worker, spec = take(service)
    result = write_results(store, spec)
    [block] = result.blocks
    age(store, block.key, service.clock.now_ms / 1000)
    service.clock.now_ms += 3 * DAY_MS
    heads = store.head

    def head_after_report(key: str) -> ObjectInfo:
        monkeypatch.setattr(store, "head", heads)
        info = heads(key)
        worker.poll(worker.success(spec.job, result), capacity=0)
        return info

    worker.poll(worker.running(spec.job), capacity=0)
    monkeypatch.setattr(store, "head", head_after_report)
    assert dict(sweep_orphans(store=store, actor="ann").kept) == {block.key: "the index knows its id"}
    assert os.path.exists(Path(store.url.removeprefix("file://")) / block.key)
