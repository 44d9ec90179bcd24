"""Registering blocks: what becomes queued or final, what is a repetition, what is refused."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from engine.formats.profile_block.model import BlockMeta
from tests.block_factory import block_meta, segment_ids, ulid
from tests.webadmin.service import Service, check_invariants
from webadmin.base.access.models import Tenant
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import AcceptedId, Block, Dataset, DatasetName, LabelSets
from webadmin.lanes.profiles.registration import PARTITION_MS, BlockRegistration
from webadmin.lanes.profiles.services import add_blocks
from webadmin.schedule.models import Command, LogHead

DAY_MS = 86_400_000


def test_a_segment_is_queued_with_its_datasets(service: Service) -> None:
    [block_id] = segment_ids(service.clock.now_ms, 1)
    outcome = service.add(block_meta(block_id, shard=7, datasets=[("acme", "web"), ("beta", "api")]))
    block = Block.objects.get()
    assert outcome.accepted == (block_id,)
    assert (block.ulid, block.shard, block.level, block.tenant, block.state) == (block_id, 7, 0, None, "queued")
    assert block.object_key == f"segments/7/anonymous/{block_id}/block.bin"
    assert block.added_command_index == outcome.command_index == Command.objects.get().index
    rows = Dataset.objects.order_by("position").values_list("tenant__name", "name__name", "label_sets__label_sets")
    assert list(rows) == [
        ("acme", "web", [[["service_name", "web"], ["__profile_type__", "cpu"]]]),
        ("beta", "api", [[["service_name", "api"], ["__profile_type__", "cpu"]]]),
    ]
    check_invariants()


def test_adding_does_not_take_the_head_of_the_log(service: Service) -> None:
    service.add_segments(1)  # the very first one starts command time
    before = LogHead.objects.values().get()
    service.add_segments(20)
    assert LogHead.objects.values().get() == before


@pytest.mark.row("Q20")
def test_blocks_of_level_three_are_never_queued(service: Service) -> None:
    service.add(*(block_meta(ulid(service.clock.now_ms, n), level=n, tenant="acme") for n in (1, 2, 3, 4)))
    states = dict(Block.objects.values_list("level", "state"))
    assert states == {1: "queued", 2: "queued", 3: "final", 4: "final"}
    check_invariants()


def test_names_and_label_sets_are_stored_once(service: Service) -> None:
    service.add_segments(30, datasets=[("acme", "web"), ("acme", "api"), ("beta", "web")])
    counts = (Tenant.objects.count(), DatasetName.objects.count(), LabelSets.objects.count(), Dataset.objects.count())
    assert counts == (2, 2, 2, 90)


def test_the_queue_stores_when_it_is_ready(service: Service) -> None:
    now = service.clock.now_ms
    service.add_segments(3)
    assert LevelQueue.objects.get().ready_at_ms == now + 36_001
    service.clock.advance(5)
    service.add_segments(17)
    queue = LevelQueue.objects.get()
    assert (queue.block_count, queue.oldest_arrival_ms, queue.ready_at_ms) == (20, now, now + 5000)
    assert queue.newest_arrival_ms == now + 5000


@pytest.mark.row("Q6")
def test_a_repetition_is_accepted_silently_and_changes_nothing(service: Service) -> None:
    metas = [block_meta(block_id) for block_id in segment_ids(service.clock.now_ms, 3)]
    service.add(*metas)
    before = service.dump()
    outcome = service.add(*metas)
    assert (outcome.command_index, outcome.accepted) == (None, ())
    assert outcome.duplicates == tuple(meta.id for meta in metas)
    assert service.dump() == before


@pytest.mark.row("I18")
def test_other_content_under_a_known_id_is_reported_and_the_first_wins(service: Service) -> None:
    [block_id] = segment_ids(service.clock.now_ms, 1)
    service.add(block_meta(block_id))
    before = service.dump()
    outcome = service.add(block_meta(block_id, datasets=[("evil", "web")]))
    assert outcome.conflicting == (block_id,)
    assert service.dump() == before


def test_new_blocks_of_a_batch_are_added_beside_known_ones(service: Service) -> None:
    known, fresh = (block_meta(block_id) for block_id in segment_ids(service.clock.now_ms, 2))
    service.add(known)
    outcome = service.add(known, fresh)
    assert (outcome.accepted, outcome.duplicates) == ((fresh.id,), (known.id,))
    assert [row["id"] for row in Command.objects.get(index=outcome.command_index).change_set["added"]] == [fresh.id]
    check_invariants()


def test_the_same_id_in_another_shard_is_another_block(service: Service) -> None:
    [block_id] = segment_ids(service.clock.now_ms, 1)
    assert service.add(block_meta(block_id, shard=1), block_meta(block_id, shard=2)).accepted == (block_id, block_id)
    check_invariants()


@pytest.mark.row("R8", "R9", "Q21")
@pytest.mark.parametrize("moment", ["owned", "replaced", "deleted"])
def test_an_accepted_id_is_never_added_again(service: Service, moment: str) -> None:
    service.add_segments(20)
    metas = [block_meta(block_id) for block_id in Block.objects.values_list("ulid", flat=True)]
    worker = service.worker()
    [spec] = worker.take()
    if moment != "owned":
        worker.poll(worker.success(spec.job), capacity=0)
    if moment == "deleted":
        Block.objects.filter(level=0).update(state="deleted", metadata=b"")
    before = service.dump()
    assert len(service.add(*metas).duplicates) == 20
    assert service.dump() == before


def test_a_block_that_outlived_its_ledger_entry_is_still_known(service: Service) -> None:
    old = block_meta(ulid(service.clock.now_ms - 30 * DAY_MS))
    assert service.add(old, any_age=True).accepted == (old.id,)
    AcceptedId.objects.all().delete()
    assert service.add(old, any_age=True).duplicates == (old.id,)
    assert service.add(replace(old, size=old.size + 1), any_age=True).conflicting == (old.id,)
    assert Block.objects.count() == 1


def test_ids_older_than_the_ledger_are_refused_unless_imported(service: Service) -> None:
    now = service.clock.now_ms
    young, old = block_meta(ulid(now - 7 * DAY_MS)), block_meta(ulid(now - 7 * DAY_MS - 1))
    outcome = service.add(young, old)
    assert outcome.accepted == (young.id,)
    [(block_id, error)] = outcome.refused
    assert (block_id, error.code) == (old.id, "id_too_old")
    assert service.add(old, any_age=True).accepted == (old.id,)


@pytest.mark.row("I1")
def test_the_partition_is_six_hours_of_the_ids_time(service: Service) -> None:
    start = service.clock.now_ms // PARTITION_MS * PARTITION_MS
    for time_ms, partition in ((start, start), (start - 1, start - PARTITION_MS), (start + 1, start)):
        assert BlockRegistration.of(block_meta(ulid(time_ms))).partition_start_ms == partition


BAD = {
    "id": lambda meta: replace(meta, id="not-a-ulid"),
    "id in lower case": lambda meta: replace(meta, id=meta.id.lower()),
    "shard": lambda meta: replace(meta, shard=1 << 32),
    "negative shard": lambda meta: replace(meta, shard=-1),
    "level": lambda meta: replace(meta, compaction_level=101, tenant="acme"),
    "tenant of a segment": lambda meta: replace(meta, tenant="acme"),
    "no tenant above level 0": lambda meta: replace(meta, compaction_level=1),
    "tenant that is a path": lambda meta: replace(
        meta, datasets=(replace(meta.datasets[0], tenant="../x"),), string_table=(*meta.string_table, "../x")
    ),
    "size": lambda meta: replace(meta, size=0),
    "huge size": lambda meta: replace(meta, size=1 << 63),
    "datasets": lambda meta: replace(meta, datasets=()),
    "dataset behind the end": lambda meta: replace(meta, datasets=(replace(meta.datasets[0], size=10**6),)),
    "dataset time": lambda meta: replace(meta, datasets=(replace(meta.datasets[0], min_time_ms=1 << 60),)),
    "time": lambda meta: replace(meta, min_time_ms=meta.max_time_ms + 1),
    "NUL": lambda meta: replace(meta, string_table=(*meta.string_table, "a\0b")),
    "long name": lambda meta: replace(
        meta, datasets=(replace(meta.datasets[0], name="n" * 501),), string_table=(*meta.string_table, "n" * 501)
    ),
}


@pytest.mark.row("I17")
@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD.keys())
def test_impossible_metadata_is_refused_alone(service: Service, spoil) -> None:
    good, bad = (block_meta(block_id) for block_id in segment_ids(service.clock.now_ms, 2))
    spoiled: BlockMeta = spoil(bad)
    registration = replace(BlockRegistration.of(good), meta=spoiled, object_key="k", size_bytes=spoiled.size)
    outcome = add_blocks([registration, BlockRegistration.of(good)], actor="test")
    assert outcome.accepted == (good.id,)
    assert [block_id for block_id, _ in outcome.refused] == [spoiled.id]
    check_invariants()


def test_the_database_orders_names_bytewise(db: None) -> None:
    names = ["a", "B", "b", "A", "é", "z", "Z", "_", "aa", "a-b", "a_b", "ab", "日"]
    DatasetName.objects.bulk_create([DatasetName(name=name) for name in names])
    assert list(DatasetName.objects.order_by("name").values_list("name", flat=True)) == sorted(names, key=str.encode)


def test_the_content_digest_covers_size_and_metadata() -> None:
    meta = block_meta(ulid(1))
    registration = BlockRegistration.of(meta)
    assert registration.content_digest() == BlockRegistration.of(meta, object_key="elsewhere").content_digest()
    assert registration.content_digest() != BlockRegistration.of(replace(meta, size=meta.size + 1)).content_digest()
    assert len(registration.content_digest()) == hashlib.sha256().digest_size * 2
