"""Adding blocks over HTTP: who may, what each block is answered, and what is refused with which code."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.formats.profile_block.model import BlockMeta
from engine.formats.proto import block_list_pb2
from engine.storage import ObjectStore, open_store
from tests.block_factory import block_meta, segment_ids, ulid
from tests.webadmin.probes import probe
from tests.webadmin.service import Service, check_invariants
from webadmin.base.access.models import RefusalCount
from webadmin.base.access.services import issue_worker_credential
from webadmin.lanes.profiles.api import blocks as api
from webadmin.lanes.profiles.block_list import CONTENT_TYPE, read_block_list
from webadmin.lanes.profiles.errors import InvalidBatch
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.services.add_blocks import BATCH_MAX
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Command, LogHead

ADDRESS = "/api/v1/blocks"
HOUR_MS = 3_600_000


@pytest.fixture
def bearer(service: Service) -> str:
    return issue_worker_credential(name="writer-1", scopes=["blocks:add"], actor="test").wire_form


def entry(meta: BlockMeta, **fields: Any) -> block_list_pb2.BlockEntry:
    return block_list_pb2.BlockEntry(**{"metadata": encode_metadata(meta), "size": meta.size} | fields)


def listed(*entries: block_list_pb2.BlockEntry) -> bytes:
    return block_list_pb2.BlockMetaList(blocks=entries).SerializeToString()


def post(bearer: str | None, body: bytes, content_type: str = CONTENT_TYPE) -> Any:
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    return Client().post(ADDRESS, data=body, content_type=content_type, headers=headers)


def answers(bearer: str, *entries: block_list_pb2.BlockEntry) -> list[tuple[str, str | None]]:
    """Send these; return status and code of each."""
    answer = post(bearer, listed(*entries))
    assert answer.status_code == 200, answer.content
    return [(block["status"], block.get("code")) for block in answer.json()["blocks"]]


def test_a_batch_is_one_command_that_does_not_take_the_head(service: Service, bearer: str) -> None:
    metas = [block_meta(block_id) for block_id in segment_ids(service.clock.now_ms, 5)]
    read_time()  # whoever asks first sets the clock
    head = LogHead.objects.values().get()
    answer = post(bearer, listed(*(entry(meta, crc32c=7) for meta in metas)))
    assert [block["status"] for block in answer.json()["blocks"]] == ["accepted"] * 5
    command = Command.objects.get()
    assert (answer.json()["command_index"], command.actor) == (command.index, "credential:writer-1")
    assert LogHead.objects.values().get() == head
    assert set(Block.objects.values_list("crc32c", "state")) == {(7, "queued")}
    check_invariants()


@pytest.mark.row("R8", "R9")
def test_a_repeated_add_changes_nothing_in_any_state_of_the_block(service: Service, bearer: str) -> None:
    metas = [block_meta(block_id) for block_id in segment_ids(service.clock.now_ms, 20)]
    answers(bearer, *map(entry, metas))
    worker = service.worker()
    [spec] = worker.take()
    before = service.dump()
    assert answers(bearer, *map(entry, metas)) == [("duplicate", None)] * 20, "q21: owned by a running job"
    assert service.dump() == before
    worker.poll(worker.success(spec.job), capacity=0)
    before = service.dump()
    assert answers(bearer, *map(entry, metas)) == [("duplicate", None)] * 20, "replaced"
    assert service.dump() == before


@pytest.mark.row("I18")
def test_the_first_write_wins_and_a_differing_one_is_reported(service: Service, bearer: str) -> None:
    [block_id] = segment_ids(service.clock.now_ms, 1)
    first, other = block_meta(block_id), block_meta(block_id, datasets=[("acme", "api")])
    assert answers(bearer, entry(first), entry(other), entry(first)) == [
        ("accepted", None),
        ("differing", None),
        ("duplicate", None),
    ]
    assert answers(bearer, entry(other)) == [("differing", None)]
    assert bytes(Block.objects.get().metadata) == encode_metadata(first)


def spoiled(now: int) -> dict[str, block_list_pb2.BlockEntry]:
    """One entry per code."""
    meta = block_meta(ulid(now, 5))
    dataset = meta.datasets[0]
    return {
        "bad_id": block_list_pb2.BlockEntry(metadata=encode_metadata(replace(meta, id="no-ulid")), size=9),
        "bad_metadata": block_list_pb2.BlockEntry(metadata=b"\xff\xff\xff", size=9),
        "bad_level": entry(block_meta(ulid(now, 5), level=101, tenant="acme")),
        "bad_tenant": entry(block_meta(ulid(now, 5), datasets=[("../x", "web")])),
        "bad_size": entry(meta, size=0),
        "bad_key": entry(meta, object_key=f"blocks/1/other/{meta.id}/block.bin"),
        "bad_name": entry(block_meta(ulid(now, 5), datasets=[("acme", "n" * 501)])),
        "bad_time": entry(replace(meta, min_time_ms=meta.max_time_ms + 1)),
        "bad_dataset": entry(replace(meta, datasets=())),
        "id_too_old": entry(block_meta(ulid(now - 8 * 24 * HOUR_MS))),
        "id_in_future": entry(block_meta(ulid(now + 2 * HOUR_MS))),
    } | {
        f"bad_time {name}": entry(changed)
        for name, changed in {
            "negative": replace(meta, min_time_ms=-1),
            "dataset before its block": replace(meta, datasets=(replace(dataset, min_time_ms=1),)),
            "starts before 1970": replace(meta, min_time_ms=-5, max_time_ms=-1),
        }.items()
    }


def data_of_next_week(now: int) -> block_list_pb2.BlockEntry:
    meta, ahead = block_meta(ulid(now, 5)), now + 7 * 24 * HOUR_MS
    return entry(replace(meta, max_time_ms=ahead, datasets=(replace(meta.datasets[0], max_time_ms=ahead),)))


@pytest.mark.row("I17")
def test_every_impossible_block_has_a_code_is_counted_and_blocks_no_other(service: Service, bearer: str) -> None:
    good = block_meta(ulid(service.clock.now_ms, 1))
    cases = spoiled(service.clock.now_ms) | {"data_in_future": data_of_next_week(service.clock.now_ms)}
    found = answers(bearer, *cases.values(), entry(good))
    assert [code for _, code in found] == [*(name.partition(" ")[0] for name in cases), None]
    assert Block.objects.get().ulid == good.id
    counts = dict(RefusalCount.objects.filter(actor="credential:writer-1").values_list("code", "count"))
    assert counts["bad_time"] == 4
    assert sum(counts.values()) == len(cases)
    check_invariants()


def test_a_clock_that_went_back_makes_no_repetition_a_refusal(service: Service, bearer: str) -> None:
    meta = block_meta(ulid(service.clock.now_ms))
    assert answers(bearer, entry(meta)) == [("accepted", None)]
    for hours in (-5, 24 * 30):
        service.clock.advance(hours * 3600)
        assert answers(bearer, entry(meta)) == [("duplicate", None)]


def test_a_text_named_a_million_times_is_refused_before_it_is_written_out(service: Service, bearer: str) -> None:
    meta = block_meta(ulid(service.clock.now_ms))
    text = "x" * 10_000
    labels = (tuple((text, text) for _ in range(1000)),)
    big = replace(
        meta,
        datasets=(replace(meta.datasets[0], labels=labels),),
        string_table=(*meta.string_table, text),
    )
    assert answers(bearer, entry(big)) == [("refused", "bad_dataset")]


@pytest.mark.parametrize("form", ["{id}/block.bin", "mine/{id}/block.bin", "segments/1/anonymous/{id}/block.bin"])
def test_the_writer_chooses_the_object_key(service: Service, bearer: str, form: str) -> None:
    meta = block_meta(ulid(service.clock.now_ms))
    assert answers(bearer, entry(meta, object_key=form.format(id=meta.id))) == [("accepted", None)]


@pytest.mark.parametrize(
    "form",
    [
        "segments/2/anonymous/{id}/block.bin",
        "dlq/1/anonymous/{id}/block.bin",
        "lineage/{id}/block.bin",
        "mine/{other}/block.bin",
        "mine/{id}/other.bin",
        "../{id}/block.bin",
        "/{id}/block.bin",
        "a\n/{id}/block.bin",
    ],
)
def test_a_key_that_could_be_anothers_is_refused(service: Service, bearer: str, form: str) -> None:
    meta = block_meta(ulid(service.clock.now_ms))
    key = form.format(id=meta.id, other=ulid(service.clock.now_ms, 9))
    assert answers(bearer, entry(meta, object_key=key)) == [("refused", "bad_key")]
    assert block_key(1, "", 0, meta.id) != key


@pytest.fixture
def objects(settings: Any, tmp_path: Path) -> ObjectStore:
    """The object store of the service; it is empty."""
    settings.OBJECT_STORE_URL = tmp_path.as_uri()
    return open_store(settings.OBJECT_STORE_URL)


def limited(tenant: str) -> str:
    return issue_worker_credential(name=tenant, scopes=["blocks:add", f"tenant:{tenant}"], actor="test").wire_form


def put_object(objects: ObjectStore, meta: BlockMeta) -> None:
    objects.put(block_key(meta.shard, meta.tenant, meta.compaction_level, meta.id), bytes(meta.size))


def test_a_credential_of_one_tenant_adds_only_its_data(service: Service, objects: ObjectStore) -> None:
    own, mixed = (block_meta(ulid(service.clock.now_ms, n)) for n in (1, 2))
    mixed = block_meta(mixed.id, datasets=[("acme", "web"), ("beta", "web")])
    put_object(objects, own)
    put_object(objects, mixed)
    sent = [entry(own), entry(mixed)]
    assert answers(limited("acme"), *sent) == [("accepted", None), ("refused", "tenant_not_allowed")]


def test_only_credentials_for_all_tenants_add_blocks_of_higher_levels(
    service: Service, bearer: str, objects: ObjectStore
) -> None:
    """A merged block replaces segments: a tenant says what it wrote, and not what becomes of it."""
    merged = block_meta(ulid(service.clock.now_ms), level=1, tenant="acme")
    put_object(objects, merged)
    assert answers(limited("acme"), entry(merged)) == [("refused", "tenant_not_allowed")]
    assert not Block.objects.exists()
    assert answers(bearer, entry(merged)) == [("accepted", None)]


def test_a_credential_of_one_tenant_does_not_learn_which_ids_others_use(
    service: Service, bearer: str, objects: ObjectStore
) -> None:
    """For an id of another tenant's segment and for an unknown one, the answers are equal."""
    theirs, nobodys = (block_meta(ulid(service.clock.now_ms, n), datasets=[("beta", "web")]) for n in (1, 2))
    put_object(objects, theirs)
    assert answers(bearer, entry(theirs)) == [("accepted", None)]
    caller = limited("acme")
    for size in (theirs.size, theirs.size + 1):
        guesses = [replace(block_meta(meta.id, datasets=[("acme", "web")]), size=size) for meta in (theirs, nobodys)]
        told = post(caller, listed(*map(entry, guesses))).json()["blocks"]
        assert [(block["status"], block["code"]) for block in told] == [("refused", "object_missing")] * 2
        words = [block["message"].replace(block["id"], "ID") for block in told]
        assert words[0] == words[1]
    assert Block.objects.get().ulid == theirs.id


def test_a_tenants_own_ids_are_compared_as_before(service: Service, objects: ObjectStore) -> None:
    caller, meta = limited("acme"), block_meta(ulid(service.clock.now_ms))
    put_object(objects, meta)
    assert answers(caller, entry(meta)) == [("accepted", None)]
    assert answers(caller, entry(meta)) == [("duplicate", None)]
    put_object(objects, longer := replace(meta, size=meta.size + 1))
    assert answers(caller, entry(longer)) == [("differing", None)]


def test_without_the_scope_nothing_is_added(service: Service) -> None:
    bearer = issue_worker_credential(name="node", actor="test").wire_form
    answer = post(bearer, b"")
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
    assert post(None, b"").status_code == 401


def test_a_body_that_is_no_list_is_refused_whole(service: Service, bearer: str) -> None:
    meta = block_meta(ulid(service.clock.now_ms))
    for body in (b"", b"\xff", b"{}", listed(*[entry(meta)] * (BATCH_MAX + 1))):
        answer = post(bearer, body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_batch")
    assert post(bearer, b"{}", "application/json").status_code == 415
    assert not Block.objects.exists()


def test_a_body_beyond_the_bound_is_not_read(bearer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "BLOCK_LIST_BYTES_MAX", 100)
    answer = post(bearer, b"x" * 101)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_or_an_error_with_a_code(data: bytes) -> None:
    wrapped = block_list_pb2.BlockMetaList(blocks=[block_list_pb2.BlockEntry(metadata=data, size=5)])
    [offer] = read_block_list(wrapped.SerializeToString(), count_max=1)
    assert (offer.error is None) != (offer.registration is None)
    with contextlib.suppress(InvalidBatch):
        offers = read_block_list(data, count_max=10)
        assert all((offer.error is None) != (offer.registration is None) for offer in offers)


def test_adding_costs_a_fixed_number_of_queries(service: Service, bearer: str, django_assert_max_num_queries) -> None:
    answers(bearer, entry(block_meta(ulid(service.clock.now_ms, 0))))
    metas = [block_meta(block_id) for block_id in segment_ids(service.clock.now_ms, 100, first=1)]
    with django_assert_max_num_queries(30):
        answers(bearer, *map(entry, metas))


def test_the_openapi_page_describes_both_operations(db: None) -> None:
    paths = probe("/api/schema/?format=json").json()["paths"]
    assert paths[ADDRESS]["post"]["operationId"] == "add_blocks"
    assert list(paths[ADDRESS]["post"]["requestBody"]["content"]) == [CONTENT_TYPE]
    assert paths[f"{ADDRESS}/query"]["post"]["operationId"] == "query_blocks"
