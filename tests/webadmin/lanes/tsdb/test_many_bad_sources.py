"""Too many sources of buckets that cannot be read: none is kept out any more until an operator decides."""

from __future__ import annotations

import pytest

from engine.lanes.tsdb.jobs import KIND
from engine.protocol.messages import FailureReason
from engine.schedule.isolation import BAD_SOURCES_MIN
from engine.storage import ObjectStore
from tests.webadmin.lanes.tsdb.conftest import CONTEXT
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, FakeNode, block_id, damage, put_block, put_sound_block
from tests.webadmin.probes import probe
from tests.webadmin.service import Service
from webadmin.lanes.tsdb.models import BlockQuarantine, Bucket, Group
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services.isolate_sources import isolate_sources
from webadmin.lanes.tsdb.states import GroupState
from webadmin.progress.services import count_log
from webadmin.schedule.isolation_stops import open_stop
from webadmin.schedule.operation_models import IsolationStop
from webadmin.schedule.services.stop_isolation import decide_isolation

RETRY, QUARANTINE = IsolationStop.Decision.RETRY, IsolationStop.Decision.QUARANTINE
PLACE = "metrics/acme"
CHUNKS = "chunks/000001"
IDS = [block_id(number) for number in range(9)]
BAD = IDS[:7]


def held() -> set[str]:
    return set(BlockQuarantine.objects.filter(released_at_ms=None).values_list("block__ulid", flat=True))


def turn_bits(store: ObjectStore) -> None:
    """Damage the bad blocks; done again it repairs them."""
    for ulid in BAD:
        damage(store, f"acme/{ulid}/{CHUNKS}", 12)


def look(store: ObjectStore, node: FakeNode, ulid: str) -> list[str]:
    """Let a job fail on this block; return what is kept out then."""
    rounds.plan_due(lambda url: store)
    [spec] = node.take()
    reason = FailureReason(error_class="ChecksumMismatch", message="no", object=f"acme/{ulid}", section=CHUNKS)
    node.worker.poll(node.failed(spec, reason), capacity=0)
    return list(isolate_sources(lambda url: store).quarantined)


@pytest.fixture
def stopped(service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode) -> IsolationStop:
    """Seven of nine replicas are damaged. Four are kept out one by one; the fifth stops that."""
    for ulid in IDS:
        put_sound_block(store, "acme/", ulid)
    put_block(store, "acme/", block_id(9), 4 * HOUR_MS, 6 * HOUR_MS)
    turn_bits(store)
    rounds.scan_buckets(lambda url: store)
    for ulid in BAD[: BAD_SOURCES_MIN - 1]:
        assert look(store, node, ulid) == [ulid]
    assert look(store, node, BAD[BAD_SOURCES_MIN - 1]) == []
    stop = open_stop(KIND, PLACE)
    assert stop is not None
    return stop


def test_a_bucket_is_not_taken_apart_block_by_block(stopped: IsolationStop, store: ObjectStore) -> None:
    assert stopped.reason == "5 of 5 recent sources cannot be merged (5 ChecksumMismatch)"
    assert held() == set(BAD[: BAD_SOURCES_MIN - 1])
    assert Group.objects.filter(state=GroupState.OPEN).count() == 1
    assert isolate_sources(lambda url: store).bytes_read == 0
    count_log()
    assert "quarantine_stopped" in [one["code"] for one in probe("/progressz").json()["blockers"]]
    assert "\nlithify_quarantine_stopped 1" in probe("/metrics").content.decode()


def test_on_a_repaired_store_all_are_merged(stopped: IsolationStop, store: ObjectStore, node: FakeNode) -> None:
    turn_bits(store)
    outcome = decide_isolation(KIND, PLACE, RETRY, context=CONTEXT)
    assert set(outcome.changed) == set(BAD[: BAD_SOURCES_MIN - 1])
    assert (held(), open_stop(KIND, PLACE)) == (set(), None)
    merged: set[str] = set()
    for _ in IDS:
        rounds.write_outboxes(lambda url: store)
        rounds.scan_buckets(lambda url: store)
        rounds.plan_due(lambda url: store)
        for spec in node.take():
            merged |= {source.id for source in spec.sources}
            node.finish(spec)
    assert merged >= set(IDS), "and results of some, merged again"


def test_after_the_decision_that_they_are_lost_all_are_kept_out(
    stopped: IsolationStop, store: ObjectStore, node: FakeNode
) -> None:
    decide_isolation(KIND, PLACE, QUARANTINE, context=CONTEXT)
    assert list(isolate_sources(lambda url: store).quarantined) == [BAD[4]]
    for ulid in BAD[5:]:
        assert look(store, node, ulid) == [ulid]
    assert (held(), open_stop(KIND, PLACE)) == (set(BAD), None)
