"""A source that cannot be read is found by reading it alone, kept out, and its group is planned again without it."""

from __future__ import annotations

import pytest

from engine.lanes.tsdb.buckets.marks import read_mark
from engine.lanes.tsdb.buckets.model import MarkKind
from engine.protocol.messages import FailureReason
from engine.schedule.model import JobState
from engine.storage import ObjectStore, StorageError
from tests.webadmin.lanes.tsdb.conftest import CONTEXT
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, FakeNode, block_id, damage, has, put_block, put_sound_block
from tests.webadmin.service import Service
from webadmin.lanes.tsdb.explain import explain_blocks
from webadmin.lanes.tsdb.models import Block, BlockQuarantine, Bucket, Group
from webadmin.lanes.tsdb.policies import layout_of
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services.isolate_sources import isolate_sources
from webadmin.lanes.tsdb.services.quarantine_sources import release_sources
from webadmin.lanes.tsdb.states import BlockState, GroupState
from webadmin.schedule.models import Job, Limits, LogHead

SOUND, BAD, ALSO_SOUND, LATER = (block_id(number) for number in range(4))
CHUNKS = "chunks/000001"


@pytest.fixture
def group(service: Service, bucket: Bucket, store: ObjectStore) -> Group:
    """A group of three replicas, one of them with a damaged chunk."""
    for ulid in (SOUND, BAD, ALSO_SOUND):
        put_sound_block(store, "acme/", ulid)
    put_block(store, "acme/", LATER, 4 * HOUR_MS, 6 * HOUR_MS)
    damage(store, f"acme/{BAD}/{CHUNKS}", 12)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    return Group.objects.get()


def fail(node: FakeNode, ulid: str) -> None:
    """Take the job and report that it failed on this block."""
    [spec] = node.take()
    reason = FailureReason(error_class="ChecksumMismatch", message="no", object=f"acme/{ulid}", section=CHUNKS)
    node.worker.poll(node.failed(spec, reason), capacity=0)


def test_a_named_bad_source_is_kept_out_and_the_rest_is_merged(
    group: Group, bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    fail(node, BAD)
    report = isolate_sources(lambda url: store)
    assert list(report.quarantined) == [BAD]
    held = BlockQuarantine.objects.get()
    assert (held.error_class, held.file, held.block.ulid) == ("ChecksumMismatch", CHUNKS, BAD)
    assert held.offset >= 0
    group.refresh_from_db()
    assert group.state == GroupState.DISSOLVED
    assert set(Job.objects.values_list("state", flat=True)) == {JobState.DISSOLVED}
    assert LogHead.objects.get().live_job_count == 0
    rounds.plan_due(lambda url: store)
    [again] = node.take()
    assert {source.id for source in again.sources} == {SOUND, ALSO_SOUND}
    node.finish(again)
    rounds.write_outboxes(lambda url: store)
    mark = read_mark(store, layout_of(bucket), "acme/", BAD, MarkKind.NO_COMPACT)
    assert mark is not None
    assert "ChecksumMismatch" in mark.details
    assert has(store, f"acme/{BAD}/meta.json")
    assert not has(store, f"acme/{BAD}/deletion-mark.json")
    [told] = explain_blocks(BAD)
    assert told.state == "quarantined"
    assert CHUNKS in told.why


def test_a_parked_job_has_all_its_sources_read(group: Group, store: ObjectStore, node: FakeNode) -> None:
    Limits.objects.update(failures_max=1)
    fail(node, "nothing it knows")
    fail(node, "nothing it knows")
    assert Job.objects.get().state == JobState.PARKED
    assert list(isolate_sources(lambda url: store).quarantined) == [BAD]


def test_a_worker_that_accuses_sound_sources_is_not_believed(group: Group, store: ObjectStore, node: FakeNode) -> None:
    fail(node, SOUND)
    report = isolate_sources(lambda url: store)
    assert (report.quarantined, report.readable) == ({}, [group.id])
    assert isolate_sources(lambda url: store).readable == []  # once per failure
    assert Job.objects.get().state == JobState.WAITING


def test_an_unavailable_store_quarantines_no_block(
    service: Service, group: Group, store: ObjectStore, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(node, BAD)

    def refuse(key: str, offset: int, length: int) -> bytes:
        raise StorageError("get", key, "the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(store, "get_range", refuse)
        report = isolate_sources(lambda url: store)
    assert (report.quarantined, list(report.unread)) == ({}, [BAD])
    assert isolate_sources(lambda url: store).quarantined == {}  # it is left alone for a while
    service.clock.advance(31)
    assert list(isolate_sources(lambda url: store).quarantined) == [BAD]


def test_what_has_no_room_is_left_alone_longer_each_time(
    service: Service, group: Group, store: ObjectStore, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(node, BAD)
    with monkeypatch.context() as patched:
        patched.setattr("webadmin.lanes.tsdb.services.isolate_sources.reserve_space", lambda files, size: size - 1)
        patched.setattr(store, "get_range", None)  # nothing is downloaded
        for wait_s in (30, 60, 120):
            assert "not enough space" in isolate_sources(lambda url: store).unread[BAD]
            service.clock.advance(wait_s - 1)
            assert isolate_sources(lambda url: store).unread == {}
            service.clock.advance(1)
    assert list(isolate_sources(lambda url: store).quarantined) == [BAD]


def test_a_round_reads_up_to_its_byte_limit_and_the_next_continues(
    group: Group, store: ObjectStore, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(store, f"acme/{BAD}/{CHUNKS}", 12)  # and so it is sound
    Limits.objects.update(failures_max=1)
    fail(node, "nothing it knows")
    fail(node, "nothing it knows")
    size = Block.objects.get(ulid=SOUND).size_bytes
    monkeypatch.setattr("webadmin.lanes.tsdb.services.isolate_sources.BYTES_PER_ROUND", 2 * size)
    first = isolate_sources(lambda url: store)
    assert (first.bytes_read, first.readable) == (2 * size, [])
    second = isolate_sources(lambda url: store)
    assert (second.bytes_read, second.readable) == (size, [group.id])
    assert isolate_sources(lambda url: store).bytes_read == 0


def test_failures_that_name_no_source_do_not_hide_one_that_does(
    service: Service, bucket: Bucket, group: Group, store: ObjectStore, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (11, 12):
        put_sound_block(store, "zzz/", block_id(number))
    put_block(store, "zzz/", block_id(13), 4 * HOUR_MS, 6 * HOUR_MS)
    damage(store, f"zzz/{block_id(12)}/{CHUNKS}", 12)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    for spec in node.take(2):
        named = f"zzz/{block_id(12)}" if spec.tenant == "zzz" else ""
        reason = FailureReason(error_class="ChecksumMismatch", message="no", object=named)
        node.worker.poll(node.failed(spec, reason), capacity=0)
    monkeypatch.setattr("webadmin.lanes.tsdb.services.isolate_sources.JOBS_MAX", 1)
    assert isolate_sources(lambda url: store).quarantined == {}
    assert list(isolate_sources(lambda url: store).quarantined) == [block_id(12)]


def test_an_unexpected_error_stops_no_other_job(
    bucket: Bucket, group: Group, store: ObjectStore, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(node, BAD)

    def breaks(*args: object, **options: object) -> None:
        raise OverflowError("beyond everything")

    with monkeypatch.context() as patched:
        patched.setattr("webadmin.lanes.tsdb.services.isolate_sources.verify_block", breaks)
        report = isolate_sources(lambda url: store)
    assert list(report.unread.values()) == ["beyond everything"]
    assert isolate_sources(lambda url: store).quarantined == {}  # it is left alone for a while


def test_a_released_block_is_planned_with_the_others_again(
    group: Group, bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    fail(node, BAD)
    isolate_sources(lambda url: store)
    rounds.write_outboxes(lambda url: store)
    damage(store, f"acme/{BAD}/{CHUNKS}", 12)  # and so it is sound again
    assert release_sources([BAD, LATER], context=CONTEXT).left == ((LATER, "it is not in quarantine"),)
    rounds.write_outboxes(lambda url: store)
    assert read_mark(store, layout_of(bucket), "acme/", BAD, MarkKind.NO_COMPACT) is None
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    [spec] = node.take()
    assert {source.id for source in spec.sources} == {SOUND, BAD, ALSO_SOUND}
    assert Block.objects.get(ulid=BAD).state == BlockState.OWNED
