"""The heart of the writer: who is answered what, when, and what is found afterwards."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import OperationalError

from engine.formats.profile_block.model import BlockMeta
from engine.ingest.segments.segment_push import PushedSeries
from engine.storage import ObjectStore
from tests.faults.failing_store import FailingStore, Fault
from tests.webadmin.ingest.writer.pushes import LABELS, TENANT, push_of, pushed_profile
from webadmin.base.database import database_clock, durability
from webadmin.base.database.database_clock import read_database_clock
from webadmin.ingest.writer import segment_writer
from webadmin.ingest.writer.credential import authorization_header, is_authorized
from webadmin.ingest.writer.gathering import ACCEPTED, Answer
from webadmin.ingest.writer.measures import WriterMeasures
from webadmin.ingest.writer.segment_writer import SegmentWriter, WriterLimits
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.services.recover_letters import recover_letters

DAY_S = 24 * 3600
QUICK = WriterLimits(flush_seconds=0.05)
Found = Callable[[], dict[str, int]]


def run(store: ObjectStore, *pushes: object, limits: WriterLimits = QUICK, then: Sequence[object] = ()) -> list[Answer]:
    """Send pushes at once, then others one after the other, to one writer; return the answers in this order."""

    async def send() -> list[Answer]:
        writer = SegmentWriter("w1", store, limits, WriterMeasures())
        answers = list(await asyncio.gather(*(writer.push(push, 1000) for push in pushes)))  # type: ignore[arg-type]
        for push in then:
            answers.append(await writer.push(push, 1000))  # type: ignore[arg-type]
        await writer.drain()
        assert writer.held_bytes == 0
        return answers

    return asyncio.run(send())


class Index:
    """In place of the real one: remembers the flushes to register, and fails as set."""

    def __init__(self, *errors: Exception) -> None:
        self.flushes: list[list[int]] = []
        self._errors = list(errors)

    def register(self, metas: Sequence[BlockMeta], actor: str) -> list[Answer]:
        self.flushes.append(sorted(meta.shard for meta in metas))
        if self._errors:
            raise self._errors.pop(0)
        return [ACCEPTED for _ in metas]


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    fake = Index()
    monkeypatch.setattr(segment_writer, "register", fake.register)
    return fake


def test_pushes_of_one_flush_share_a_segment_per_shard_and_one_registration(store: ObjectStore, found: Found) -> None:
    pushes = [push_of(pushed_profile(f"f{n}"), shard=1 + n % 2) for n in range(6)]
    assert run(store, *pushes) == [ACCEPTED] * 6
    assert sorted(Block.objects.values_list("shard", flat=True)) == [1, 2]
    assert found() == {f"f{n}": 1 for n in range(6)}


@pytest.mark.parametrize("step_s", [-8 * DAY_S, DAY_S], ids=["back", "ahead"])
def test_a_writer_whose_wall_clock_was_set_is_not_refused(
    store: ObjectStore, found: Found, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    wall_ns, header = time.time_ns, authorization_header("w1")
    monkeypatch.setattr(database_clock, "_monotonic_at_epoch_ms", None)
    read_database_clock()
    monkeypatch.setattr(time, "time", lambda: wall_ns() / 1e9 + step_s)
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + step_s * 10**9)
    assert run(store, push_of(pushed_profile("f"))) == [ACCEPTED]
    assert found() == {"f": 1}
    assert is_authorized(header, "w1")


def test_all_shards_of_a_flush_are_registered_together(store: ObjectStore, index: Index) -> None:
    run(store, *(push_of(pushed_profile("f"), shard=shard) for shard in (7, 2, 5)))
    assert index.flushes == [[2, 5, 7]]


def test_a_push_sent_again_is_found_once_in_the_same_flush_and_in_later_ones(store: ObjectStore, found: Found) -> None:
    push = push_of(pushed_profile("twice"))
    assert run(store, push, push, then=[push]) == [ACCEPTED] * 3
    assert Block.objects.count() == 2
    assert found() == {"twice": 1}


def test_pushes_are_acknowledged_after_object_and_index_have_them(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = threading.Event(), threading.Event()

    def register(metas: Sequence[BlockMeta], actor: str) -> list[Answer]:
        assert [info.size for info in store.list("segments/")] == [metas[0].size], "the object comes first"
        asked.set()
        assert answer.wait(10)
        return [ACCEPTED]

    monkeypatch.setattr(segment_writer, "register", register)

    async def send() -> None:
        writer = SegmentWriter("w1", store, QUICK, WriterMeasures())
        push = asyncio.ensure_future(writer.push(push_of(pushed_profile("f")), 10))
        await asyncio.to_thread(asked.wait, 10)
        assert asked.is_set()
        assert not push.done()
        answer.set()
        assert await push is ACCEPTED
        await writer.drain()

    asyncio.run(send())


def test_a_full_flush_does_not_wait_for_the_clock(store: ObjectStore, index: Index) -> None:
    limits = WriterLimits(flush_seconds=3600, flush_bytes=2000)
    assert run(store, *(push_of(pushed_profile(f"f{n}")) for n in range(2)), limits=limits) == [ACCEPTED] * 2
    assert index.flushes == [[1]]


def test_a_drain_stores_what_was_taken_and_takes_nothing_new(store: ObjectStore, index: Index) -> None:
    async def send() -> None:
        writer = SegmentWriter("w1", store, WriterLimits(flush_seconds=3600), WriterMeasures())
        taken = asyncio.ensure_future(writer.push(push_of(pushed_profile("f")), 10))
        await asyncio.sleep(0)
        await writer.drain()
        assert await taken is ACCEPTED
        refused = await writer.push(push_of(pushed_profile("g")), 10)
        assert (refused.status, refused.code) == (503, "draining")

    asyncio.run(send())
    assert len(index.flushes) == 1


def test_with_the_index_away_letters_are_written_and_recovered_later(
    store: ObjectStore, found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Index(OperationalError("gone"))
    with monkeypatch.context() as patch:
        patch.setattr(segment_writer, "register", away.register)
        pushes = [push_of(pushed_profile(f"f{n}"), shard=n) for n in (1, 2)]
        assert run(store, *pushes, then=[push_of(pushed_profile("f3"))]) == [ACCEPTED] * 3
    assert len(away.flushes) == 1, "while it is away not every flush waits for it"
    assert found() == {}
    assert recover_letters(store=store).recovered == 3
    assert found() == {"f1": 1, "f2": 1, "f3": 1}


def test_an_index_that_does_not_answer_is_away(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def register(metas: Sequence[BlockMeta], actor: str) -> list[Answer]:
        assert answer.wait(10)
        return [ACCEPTED]

    monkeypatch.setattr(segment_writer, "register", register)
    monkeypatch.setattr(segment_writer, "INDEX_SECONDS", 0.05)
    try:
        assert run(store, push_of(pushed_profile("f"))) == [ACCEPTED]
    finally:
        answer.set()
    assert len(list(store.list("dlq/"))) == 1


def test_the_first_flush_that_loses_the_index_releases_the_others_and_a_heartbeat_brings_it_back(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail = threading.Event()
    calls = threading.Semaphore(0)

    def register(metas: Sequence[BlockMeta], actor: str) -> list[Answer]:
        calls.release()
        if metas[0].shard == 1:
            assert fail.wait(10)
            raise OperationalError("gone")
        assert answers.wait(10)
        return [ACCEPTED]

    answers = threading.Event()
    monkeypatch.setattr(segment_writer, "register", register)
    monkeypatch.setattr(segment_writer, "INDEX_SECONDS", 60)

    async def send() -> None:
        writer = SegmentWriter("w1", store, QUICK, WriterMeasures())
        pushes = []
        for shard in (1, 2):
            pushes.append(asyncio.ensure_future(writer.push(push_of(pushed_profile("f"), shard=shard), 10)))
            assert await asyncio.to_thread(calls.acquire, timeout=10)
        fail.set()
        assert await asyncio.gather(*pushes) == [ACCEPTED] * 2, "the second one's registration still runs"
        assert writer.is_index_away
        answers.set()
        assert await writer.push(push_of(pushed_profile("g"), shard=2), 10) is ACCEPTED
        assert len(list(store.list("dlq/"))) == 3, "while it is away nobody tries"
        writer.index_answers()
        assert await writer.push(push_of(pushed_profile("h"), shard=2), 10) is ACCEPTED
        assert len(list(store.list("dlq/"))) == 3
        await writer.drain()

    try:
        asyncio.run(send())
    finally:
        answers.set()
    losses = [record.getMessage() for record in caplog.records if "index_away" in record.getMessage()]
    assert losses == ["index_away segments=1 error=gone"], "one flush lost it, the other was released"


def test_a_segment_registered_and_lettered_is_one_block(
    store: ObjectStore, found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = segment_writer.register

    def register(metas: Sequence[BlockMeta], actor: str) -> list[Answer]:
        real(metas, actor)
        raise OperationalError("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(segment_writer, "register", register)
        assert run(store, push_of(pushed_profile("f"))) == [ACCEPTED]
    assert recover_letters(store=store).recovered == 1
    assert Block.objects.count() == 1
    assert found() == {"f": 1}


@pytest.mark.parametrize("call", [1, 2, 3, 4])
@pytest.mark.parametrize("is_late", [False, True], ids=["not done", "done, answer lost"])
def test_one_failing_put_is_tried_again(store: ObjectStore, found: Found, call: int, is_late: bool) -> None:
    failing = FailingStore(store, Fault("put", call=call, is_late=is_late))
    pushes = [push_of(pushed_profile(f"f{n}"), shard=n) for n in (1, 2, 3)]
    assert run(failing, *pushes, then=[push_of(pushed_profile("f4"))]) == [ACCEPTED] * 4
    assert found() == {f"f{n}": 1 for n in (1, 2, 3, 4)}


def test_a_store_that_fails_for_one_shard_refuses_that_shard_only_and_the_sender_may_retry(
    store: ObjectStore, found: Found
) -> None:
    failing = FailingStore(store, Fault("put", key_part="segments/2/", is_late=True, is_durable=True))
    pushes = [push_of(pushed_profile(f"f{n}"), shard=n) for n in (1, 2, 3)]
    answers = run(failing, *pushes)
    assert [(answer.status, answer.code) for answer in answers] == [(200, "ok"), (503, "unavailable"), (200, "ok")]
    assert run(store, pushes[1]) == [ACCEPTED], "the next instance stores it under the same shard"
    assert found() == {"f1": 1, "f2": 1, "f3": 1}


def test_the_last_refusal_of_the_store_is_kept_until_it_takes_a_flush(store: ObjectStore, found: Found) -> None:
    async def send() -> list[str]:
        failing = FailingStore(store, Fault("put", key_part="segments/2/", is_durable=True))
        writer = SegmentWriter("w1", failing, QUICK, WriterMeasures())
        errors = []
        for shard in (2, 1):
            await writer.push(push_of(pushed_profile(f"f{shard}"), shard=shard), 1000)
            errors.append(writer.store_error)
        await writer.drain()
        return errors

    refused, taken = asyncio.run(send())
    assert "segments/2/" in refused
    assert taken == ""


def test_without_index_and_letters_nothing_is_acknowledged(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "register", Index(OperationalError("gone")).register)
    failing = FailingStore(store, Fault("put", key_part="dlq/", is_durable=True))
    [answer] = run(failing, push_of(pushed_profile("f")))
    assert (answer.status, answer.code) == (503, "unavailable")


def test_a_profile_that_cannot_be_stored_is_named_and_stops_no_other(store: ObjectStore, found: Found) -> None:
    damaged = PushedSeries(labels=LABELS, pprof=b"\x0a\xff", received_at_ns=1)
    bad, good = run(store, push_of(damaged, pushed_profile("beside")), push_of(pushed_profile("other")))
    assert (bad.status, bad.code) == (400, "bad_profile")
    assert "profile 0 of 2" in bad.message
    assert good is ACCEPTED
    assert found() == {"beside": 1, "other": 1}


def test_a_push_of_nothing_but_damage_makes_no_segment(store: ObjectStore, index: Index) -> None:
    [answer] = run(store, push_of(PushedSeries(labels=LABELS, pprof=b"\x0a\xff", received_at_ns=1)))
    assert answer.status == 400
    assert index.flushes == []
    assert list(store.list()) == []


def test_an_unexpected_error_answers_every_waiting_push(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "put_segment", lambda *_: 1 / 0)
    [answer] = run(store, push_of(pushed_profile("f")))
    assert (answer.status, answer.code) == (500, "internal")


def test_a_large_push_is_parsed_while_the_flush_is_gathered(
    store: ObjectStore, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "PARSE_BYTES", 1)
    assert run(store, *(push_of(pushed_profile(f"f{n}")) for n in range(20))) == [ACCEPTED] * 20
    assert index.flushes == [[1]]


def test_tenants_share_a_segment_and_keep_their_datasets(store: ObjectStore, real_index: None) -> None:
    assert run(store, *(push_of(pushed_profile("f"), tenant=tenant) for tenant in (TENANT, "river"))) == [ACCEPTED] * 2
    assert Block.objects.count() == 1


def test_on_an_unsafe_database_nothing_is_acknowledged(
    store: ObjectStore, index: Index, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.ALLOW_UNSAFE_DATABASE = False
    monkeypatch.setattr(durability, "_found", ("fsync=off",))
    [answer] = run(store, push_of(pushed_profile("f")))
    assert (answer.status, answer.code) == (503, "unsafe_database")
    assert not list(store.list("segments/"))


def test_a_database_found_unsafe_at_registration_acknowledges_nothing(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.ALLOW_UNSAFE_DATABASE = False
    monkeypatch.setattr(durability, "_found", ())

    def register(metas: Sequence[BlockMeta], actor: str) -> list[Answer]:
        monkeypatch.setattr(durability, "_found", ("synchronous_commit=off",))
        return [ACCEPTED] * len(metas)

    monkeypatch.setattr(segment_writer, "register", register)
    [answer] = run(store, push_of(pushed_profile("f")))
    assert (answer.status, answer.code) == (503, "unsafe_database")
