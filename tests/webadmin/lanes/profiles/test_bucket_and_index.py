"""The index built again from the bucket, the two compared both ways, and unreferenced objects swept."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from engine.formats.profile_block.container.metadata import encode_footer, encode_metadata
from engine.formats.profile_block.container.object_names import block_key, dead_letter_key
from engine.formats.profile_block.model import BlockMeta
from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.storage import ObjectInfo, ObjectStore, StorageError, open_store
from tests.block_factory import block_meta, merged, ulid
from tests.webadmin.service import Service, check_invariants
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.profiles.errors import SweepRefused
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import (
    AcceptedId,
    Block,
    BlockLineage,
    Dataset,
    LineageMark,
    LineageObject,
    Tombstone,
)
from webadmin.lanes.profiles.registration import BlockRegistration
from webadmin.lanes.profiles.services import add_blocks
from webadmin.lanes.profiles.services.compare_bucket import Finding, compare_bucket, sweep_orphans
from webadmin.lanes.profiles.services.delete_objects import delete_tombstoned_objects
from webadmin.lanes.profiles.services.rebuild_index import rebuild_index
from webadmin.lanes.profiles.services.record_lineage import record_lineage
from webadmin.schedule.models import Attempt, Job, Limits, LogHead

DAY_MS = 86_400_000


@pytest.fixture
def store(tmp_path: Path, settings: Any) -> ObjectStore:
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    return open_store(settings.OBJECT_STORE_URL)


def put(store: ObjectStore, meta: BlockMeta) -> BlockMeta:
    """Write an object with this metadata as footer; return the metadata with the object's size."""
    data = bytes(meta.metadata_offset) + encode_footer(meta)
    store.put(block_key(meta.shard, meta.tenant, meta.compaction_level, meta.id), data)
    return replace(meta, size=len(data))


def add(service: Service, store: ObjectStore, count: int, **options: Any) -> list[BlockMeta]:
    """Write and register segments."""
    first = Block.objects.count()
    metas = [put(store, block_meta(ulid(service.clock.now_ms + n, first + n), **options)) for n in range(count)]
    assert len(service.add(*metas).accepted) == count
    return metas


def take(service: Service) -> tuple[Any, ProfileMergeSpec]:
    worker = service.worker()
    [spec] = worker.take()
    return worker, spec


def write_results(store: ObjectStore, spec: ProfileMergeSpec) -> Any:
    """Write what the merge would; return its result with the sizes written."""
    from engine.formats.profile_block.container.metadata import decode_metadata

    result = merged(spec)
    sizes = [put(store, replace(decode_metadata(block.metadata), size=0)).size for block in result.blocks]
    blocks = tuple(replace(block, size=size) for block, size in zip(result.blocks, sizes, strict=True))
    return replace(result, blocks=blocks)


def compact(service: Service, store: ObjectStore) -> None:
    worker, spec = take(service)
    worker.poll(worker.success(spec.job, write_results(store, spec)), capacity=0)


def forget_everything() -> None:
    """Lose the index."""
    rows = (LineageObject, Tombstone, BlockLineage, Dataset, Block, AcceptedId, Attempt, Job, LevelQueue, LineageMark)
    for model in rows:
        model.objects.all().delete()
    LogHead.objects.update(live_job_count=0)


def live() -> list[tuple[int, str]]:
    return sorted(Block.objects.live().values_list("level", "ulid"))


def make_due(service: Service) -> None:
    Tombstone.objects.update(eligible_at_ms=0)


def test_a_lost_index_comes_back_as_it_was(service: Service, store: ObjectStore) -> None:
    add(service, store, 5, datasets=[("acme", "web"), ("beta", "api")])
    before, bounds = live(), set(Dataset.objects.values_list("tenant__name", "min_time_ms", "max_time_ms"))
    forget_everything()
    assert rebuild_index(store=store, actor="test").added == 5
    assert live() == before
    assert set(Dataset.objects.values_list("tenant__name", "min_time_ms", "max_time_ms")) == bounds
    check_invariants()


def test_a_second_run_reads_nothing_again(service: Service, store: ObjectStore) -> None:
    add(service, store, 5)
    before = service.dump()
    reads = store.usage.requests().get("get_range", 0)
    outcome = rebuild_index(store=store, actor="test")
    assert (outcome.known, outcome.added) == (5, 0)
    assert store.usage.requests().get("get_range", 0) == reads
    assert service.dump() == before


@pytest.mark.parametrize("deleted", [0, 7])
def test_sources_in_a_record_are_left_out_however_many_are_deleted(
    service: Service, store: ObjectStore, deleted: int
) -> None:
    add(service, store, 20)
    compact(service, store)
    before = live()
    make_due(service)
    if deleted:
        assert delete_tombstoned_objects(store=store, limit=deleted).deleted == deleted
    else:
        record_lineage(store=store)
    forget_everything()
    outcome = rebuild_index(store=store, actor="test")
    assert (live(), len(outcome.left_out)) == (before, 20 - deleted)


@pytest.mark.parametrize("is_committed", [False, True])
def test_sources_of_an_unrecorded_swap_are_restored(service: Service, store: ObjectStore, is_committed: bool) -> None:
    metas = add(service, store, 20, datasets=[("acme", "web"), ("beta", "web")])
    worker, spec = take(service)
    result = write_results(store, spec)
    if is_committed:
        worker.poll(worker.success(spec.job, result), capacity=0)
    forget_everything()
    outcome = rebuild_index(store=store, actor="test")
    assert live() == sorted((0, meta.id) for meta in metas)
    assert len(outcome.left_out) == 2
    check_invariants()


def test_when_a_result_is_lost_and_all_sources_are_there_the_sources_count(
    service: Service, store: ObjectStore
) -> None:
    metas = add(service, store, 20, datasets=[("acme", "web"), ("beta", "web")])
    compact(service, store)
    record_lineage(store=store)
    store.delete(Block.objects.filter(level=1).values_list("object_key", flat=True)[0])
    forget_everything()
    rebuild_index(store=store, actor="test")
    assert live() == sorted((0, meta.id) for meta in metas)


def test_foreign_blocks_without_sources_are_added(service: Service, store: ObjectStore) -> None:
    put(store, block_meta(ulid(1_500_000_000_000, 1), level=2, tenant="acme"))
    assert rebuild_index(store=store, actor="test").added == 1


def test_nothing_is_deleted_while_its_lineage_cannot_be_recorded(
    service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(service, store, 20)
    compact(service, store)
    make_due(service)

    def fail(key: str, data: bytes) -> None:
        raise StorageError("put", key, "full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "put", fail)
        with pytest.raises(StorageError):
            delete_tombstoned_objects(store=store)
    assert sum(info.key.startswith("segments/") for info in store.list()) == 20
    assert record_lineage(store=store) == 1
    assert record_lineage(store=store) == 0


def test_an_invalid_lineage_record_is_reported_and_the_rebuild_continues(service: Service, store: ObjectStore) -> None:
    store.put("lineage/1/x.json", b'{"version": 1, "sources": 7}')
    add(service, store, 1)
    forget_everything()
    outcome = rebuild_index(store=store, actor="test")
    assert (outcome.added, [key for key, _ in outcome.bad]) == (1, ["lineage/1/x.json"])


def test_fsck_finds_what_is_missing_unknown_and_different(service: Service, store: ObjectStore) -> None:
    fine, gone, short = add(service, store, 3)
    store.delete(block_key(1, "", 0, gone.id))
    store.put(block_key(1, "", 0, short.id), b"x")
    orphan = put(store, block_meta(ulid(service.clock.now_ms, 77), shard=2))
    found = {(d.finding, d.key) for d in compare_bucket(store)}
    assert found == {
        (Finding.MISSING, block_key(1, "", 0, gone.id)),
        (Finding.SIZE, block_key(1, "", 0, short.id)),
        (Finding.UNKNOWN, block_key(2, "", 0, orphan.id)),
    }
    assert fine.id not in str(found)


def test_only_a_deep_fsck_finds_changed_bytes(service: Service, store: ObjectStore) -> None:
    meta = put(store, block_meta(ulid(service.clock.now_ms)))
    registration = BlockRegistration.of(meta, crc32c=7)
    add_blocks([registration], actor="test")
    assert list(compare_bucket(store)) == []
    [difference] = compare_bucket(store, is_deep=True)
    assert (difference.finding, difference.key) == (Finding.CHECKSUM, registration.object_key)


def test_fsck_does_not_call_damage_what_happened_while_it_walked(
    service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk over a large bucket takes hours: blocks are merged and their objects deleted, and others come."""
    Limits.objects.update(cleanup_delay_seconds=0)
    add(service, store, 20)
    newcomer = put(store, block_meta(ulid(service.clock.now_ms + 100, 99), shard=3))
    listed = store.list

    def list_late(prefix: str = "") -> Iterator[ObjectInfo]:
        """The walk has its rows; now something happens."""
        monkeypatch.setattr(store, "list", listed)
        worker, spec = take(service)
        worker.poll(worker.success(spec.job, write_results(store, spec)), capacity=0)
        service.clock.advance(1)
        assert delete_tombstoned_objects(store=store).deleted == 20
        assert service.add(newcomer).accepted == (newcomer.id,)
        yield from listed(prefix)

    monkeypatch.setattr(store, "list", list_late)
    assert list(compare_bucket(store)) == []


def run(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command(*arguments, stdout=out, stderr=io.StringIO())
    except SystemExit as stop:
        return int(stop.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_the_commands_print_their_findings(service: Service, store: ObjectStore) -> None:
    [meta] = add(service, store, 1)
    put(store, block_meta(ulid(service.clock.now_ms - 3 * DAY_MS, 5)))
    assert run("fsck") == (
        0,
        f"unknown     segments/1/anonymous/{ulid(service.clock.now_ms - 3 * DAY_MS, 5)}/block.bin  "
        f"{meta.size} bytes that the index does not name\n"
        "0 missing, 0 size, 0 checksum, 0 unreadable, 1 unknown\n",
    )
    store.delete(block_key(1, "", 0, meta.id))
    code, out = run("fsck", "--json")
    assert (code, json.loads(out)["counts"]) == (1, {"unknown": 1, "missing": 1})
    code, out = run("rebuild_index")
    assert (code, out) == (0, "1 blocks found, 1 added, 0 known before, 0 left out, 0 bad\n")
    assert run("sweep_orphans", "--dry-run") == (0, "would delete 0 objects, kept 0\n")


def orphan(store: ObjectStore, service: Service, number: int, *, id_days: float = 3, written_days: float = 3) -> str:
    """Write an unregistered object, made and written so many days ago."""
    now = service.clock.now_ms
    meta = block_meta(ulid(now - round(id_days * DAY_MS), number), level=1, tenant="acme")
    put(store, meta)
    key = block_key(1, "acme", 1, meta.id)
    age(store, key, (now - written_days * DAY_MS) / 1000)
    return key


def age(store: ObjectStore, key: str, seconds: float) -> None:
    os.utime(Path(store.url.removeprefix("file://")) / key, (seconds, seconds))


def test_only_what_is_old_by_id_and_by_the_store_is_swept(service: Service, store: ObjectStore) -> None:
    old = orphan(store, service, 1)
    young = orphan(store, service, 2, id_days=0.5)
    fresh = orphan(store, service, 3, written_days=0.5)
    dry = sweep_orphans(store=store, actor="ann", is_dry_run=True)
    assert (dry.swept, {key for key, _ in dry.kept}) == ((old,), {young, fresh})
    assert store.head(old)
    assert sweep_orphans(store=store, actor="ann").swept == (old,)
    assert {info.key for info in store.list()} == {young, fresh}
    assert AuditEntry.objects.get(action="sweep_orphans").detail == {"keys": [old]}
    assert sweep_orphans(store=store, actor="ann").swept == ()


def test_what_a_live_job_or_a_dead_letter_could_name_stays(service: Service, store: ObjectStore) -> None:
    add(service, store, 20)
    _, spec = take(service)
    [result] = write_results(store, spec).blocks
    lettered = block_meta(ulid(service.clock.now_ms + 5000, 900))
    put(store, lettered)
    store.put(dead_letter_key(1, "", lettered.id), encode_metadata(lettered))
    for key in (result.key, block_key(1, "", 0, lettered.id)):
        age(store, key, service.clock.now_ms / 1000)
    service.clock.advance(5 * 86_400)
    outcome = sweep_orphans(store=store, actor="ann")
    assert dict(outcome.kept)[result.key] == "a scheduled job could still name it"
    assert dict(outcome.kept)[block_key(1, "", 0, lettered.id)] == "a dead letter names it"
    assert outcome.swept == ()


def test_what_stays_keeps_nothing_else_from_being_swept(
    service: Service, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("webadmin.lanes.profiles.services.compare_bucket"), "ORPHANS_PER_SWEEP", 2)
    for number in range(3):
        orphan(store, service, number, id_days=0.5)
        store.put(f"anothers/{number}/block.bin", b"x")
    old = [orphan(store, service, 10 + number) for number in range(3)]
    assert sweep_orphans(store=store, actor="ann").swept == tuple(old[:2])
    assert sweep_orphans(store=store, actor="ann").swept == tuple(old[2:])


def test_a_sweep_on_an_empty_index_is_refused(service: Service, store: ObjectStore) -> None:
    for number in range(101):
        orphan(store, service, number)
    with pytest.raises(SweepRefused, match=r"101 objects are unknown and 0 blocks known: .* then --force"):
        sweep_orphans(store=store, actor="ann")
    code, told = run("sweep_orphans", "--dry-run")
    assert code == 0, "to look is never refused"
    assert "would delete 101 objects, kept 0" in told
    assert "without --dry-run this is refused: 101 objects are unknown" in told
    assert len(list(store.list())) == 101
    code, told = run("sweep_orphans", "--force")
    assert (code, told.splitlines()[-1], list(store.list())) == (0, "deleted 101 objects, kept 0", [])
