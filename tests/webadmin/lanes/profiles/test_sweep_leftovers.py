"""What has served its purpose goes: not too early, in bounds, in the right order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.storage import ObjectStore, StorageError, open_store
from tests.block_factory import block_meta, ulid
from tests.webadmin.lanes.profiles.test_bucket_and_index import forget_everything, put
from tests.webadmin.lanes.profiles.test_restore import History
from tests.webadmin.service import Service
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.models import AcceptedId, Block, LineageObject, SweptTotal, Tombstone
from webadmin.lanes.profiles.services import import_blocks, sweep_leftovers
from webadmin.lanes.profiles.services.rebuild_index import rebuild_index
from webadmin.lanes.profiles.services.sweep_leftovers import sweep_ledger, sweep_lineage, sweep_scratch
from webadmin.schedule.errors import LogBehind
from webadmin.schedule.log_position import LogPosition
from webadmin.schedule.models import LogHead
from webadmin.schedule.services import guard_deletions

DAY_MS = 86_400_000
RECORDS = "lineage/"


@pytest.fixture
def history(service: Service, tmp_path: Path) -> History:
    """An empty service and bucket, where two blocks make a job."""
    LevelPolicy.objects.update(blocks_max=2)
    return History(service, open_store(str(tmp_path)))


def merge_twice(history: History) -> None:
    """Merge two pairs of segments, and the results."""
    for _ in range(2):
        history.add(("acme",), ("acme",))
        history.merge()
        history.report()
    history.merge()
    history.report()


def later(days: float) -> None:
    """Let command time pass, as it does in so many days with commands."""
    LogHead.objects.update(command_time_ms=LogHead.objects.get().command_time_ms + round(days * DAY_MS))


def records(store: ObjectStore) -> int:
    return len(list(store.list(RECORDS)))


def test_ids_are_forgotten_when_none_so_old_is_accepted_any_more(service: Service, tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    made = service.clock.now_ms
    metas = [put(store, block_meta(ulid(made - age, n))) for n, age in enumerate((0, 7 * DAY_MS, 8 * DAY_MS + 1))]
    service.add(*metas, any_age=True)
    assert sweep_ledger() == 1
    assert set(AcceptedId.objects.values_list("ulid", flat=True)) == {meta.id for meta in metas[:2]}
    assert [code for _, error in service.add(metas[2]).refused if (code := error.code)] == []
    assert import_blocks(store=store, actor="test").known == 3, "its row in the index knows it"
    assert SweptTotal.objects.get(what="ledger").count == 1


def test_the_ledger_is_swept_in_parts(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_leftovers, "LEDGER_ROWS_PER_RUN", 2)
    old = [block_meta(ulid(service.clock.now_ms - 30 * DAY_MS, n)) for n in range(3)]
    service.add(*old, any_age=True)
    assert [sweep_ledger() for _ in range(3)] == [2, 1, 0]


def test_a_record_stays_while_an_object_of_its_blocks_does(history: History) -> None:
    merge_twice(history)
    for _ in range(2):
        history.delete(100)
    assert records(history.store) == 3
    later(8)
    assert sweep_lineage(store=history.store) == 2, "the last one's result is live"
    assert records(history.store) == LineageObject.objects.count() == 1
    forget_everything()
    rebuild_index(store=history.store, actor="test")
    history.check()


def test_a_record_stays_for_days_after_the_last_object(history: History) -> None:
    merge_twice(history)
    history.delete(100)
    later(6)
    assert sweep_lineage(store=history.store) == 0
    later(2)
    assert sweep_lineage(store=history.store) == 2


def test_a_record_outlives_those_that_name_its_sources(history: History) -> None:
    """Else a restore would take the lost result of the first merge for lost data, and its sources for live."""
    merge_twice(history)
    history.delete(100)
    Tombstone.objects.filter(block__level=0, block__ulid=Block.objects.filter(level=0).first().ulid).update(
        deleted_at_ms=None
    )
    live = Block.objects.live().get()
    Tombstone.objects.create(block=live, command_index=0, created_at_ms=0, eligible_at_ms=0, deleted_at_ms=1)
    later(8)
    assert sweep_lineage(store=history.store) == 1
    assert records(history.store) == 2


def test_lineage_records_are_swept_in_rotation(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_leftovers, "RECORDS_PER_RUN", 1)
    merge_twice(history)
    history.delete(100)
    later(8)
    assert sorted(sweep_lineage(store=history.store) for _ in range(4)) == [0, 0, 1, 1]


def test_a_store_that_fails_leaves_the_record_for_the_next_run(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge_twice(history)
    history.delete(100)
    later(8)

    def fail(key: str) -> None:
        raise StorageError("delete", key, "no answer")

    with monkeypatch.context() as patch:
        patch.setattr(history.store, "delete", fail)
        with pytest.raises(StorageError):
            sweep_lineage(store=history.store)
    assert sweep_lineage(store=history.store) == 2


def test_only_old_scratch_objects_go(service: Service, tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    now = service.clock.now_ms / 1000
    for key, age in {"scratch/a/1": 2 * 86_400, "scratch/a/2": 3600, "segments/x": 2 * 86_400}.items():
        store.put(key, b"x")
        os.utime(tmp_path / key, (now - age, now - age))
    assert sweep_scratch(store=store) == 1
    assert {info.key for info in store.list()} == {"scratch/a/2", "segments/x"}


def test_no_scratch_object_goes_while_the_log_is_behind_the_bucket(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path))
    old = service.clock.now_ms / 1000 - 2 * 86_400
    for number in range(4):
        store.put(f"scratch/{number}", b"x")
        os.utime(tmp_path / f"scratch/{number}", (old, old))
    lost = LogPosition(epoch="f" * 32, command_index=10**6, entry="e" * 32, written_at_ms=1)
    store.put(lost.key, lost.encode())
    with pytest.raises(LogBehind):
        sweep_scratch(store=store)
    assert len(list(store.list("scratch/"))) == 4
    store.delete(lost.key)
    asked: list[ObjectStore | None] = []
    monkeypatch.setattr(guard_deletions, "DELETIONS_PER_QUESTION", 3)
    monkeypatch.setattr(guard_deletions, "allow_deletions", lambda *, store=None: asked.append(store))
    assert sweep_scratch(store=store) == 4
    assert asked == [store, store]


def test_one_run_does_all_and_lists_only_the_scratch_folder(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path))
    listed: list[str] = []
    inner = store.list
    monkeypatch.setattr(store, "list", lambda prefix="", **options: listed.append(prefix) or inner(prefix, **options))
    report = sweep_leftovers.sweep_leftovers(store=store)
    assert (report.ledger_rows, report.unfinished_uploads, listed) == (0, 0, ["scratch/"])
    assert set(SweptTotal.objects.values_list("what", flat=True)) == {"ledger", "lineage", "scratch", "uploads"}
