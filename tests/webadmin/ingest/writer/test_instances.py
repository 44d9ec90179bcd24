"""The registry of segment writers and the ledger of their shards."""

from __future__ import annotations

import pytest
from django.db import DatabaseError

from engine.placement.errors import RingRefused
from engine.placement.publication import load_ring
from engine.placement.ring import EMPTY_RING, Ring
from engine.storage import ObjectStore
from tests.database import ManualClock
from tests.faults.failing_store import FailingStore, Fault
from tests.signed_documents import signed
from webadmin.base.access.models import AuditEntry
from webadmin.placement.models import Instance, RingChange, Slot
from webadmin.placement.services import read_ring as reading
from webadmin.placement.services.instances import (
    HeartbeatAnswer,
    InstanceRefused,
    Registration,
    current_ring,
    drain_instance,
    heartbeat,
    leave,
    register_instance,
    settle_ring,
    size_ring,
)
from webadmin.placement.services.read_ring import publish_current_ring, read_ring

pytestmark = pytest.mark.django_db


def register(*names: str, zone: str = "") -> Ring:
    for name in names:
        ring = register_instance(Registration(name=name, address=f"http://{name}:1", zone=zone))
    return ring


def owners() -> dict[tuple[str, int], str]:
    return {(slot.zone, slot.shard): slot.instance for slot in Slot.objects.all()}


def writable() -> list[str]:
    return [instance.id for instance in current_ring().instances if instance.is_writable()]


def test_registered_instances_own_shards_and_the_ledger_agrees_with_the_ring(clock: ManualClock) -> None:
    ring = register("a", "b", "c")
    assert set(ring.tables[""]) == {"a", "b", "c"}
    assert owners() == {("", shard): owner for shard, owner in enumerate(ring.tables[""], 1)}
    assert current_ring() == ring
    assert AuditEntry.objects.filter(action="register_instance").count() == 3


def test_registering_again_changes_nothing_but_what_is_different(clock: ManualClock) -> None:
    before = register("a", "b")
    assert register("a") == before
    moved = register_instance(Registration(name="a", address="http://elsewhere:2"))
    assert moved.version == before.version + 1
    assert moved.tables == before.tables


def test_only_the_slots_of_a_leaving_instance_move(clock: ManualClock) -> None:
    before_ring = register("a", "b", "c", "d")
    before = owners()
    assert leave("b")
    after = owners()
    assert {key for key in before if before[key] != after[key]} == {key for key in before if before[key] == "b"}
    moved = Slot.objects.filter(ring_version__gt=before_ring.version)
    assert {(slot.zone, slot.shard) for slot in moved} == {key for key in before if before[key] == "b"}
    assert RingChange.objects.first().moved_slots == moved.count()  # type: ignore[union-attr]
    assert not leave("b"), "going twice changes nothing"


def test_a_briefly_silent_instance_is_not_writable_and_keeps_its_shards(clock: ManualClock) -> None:
    register("a", "b")
    before = owners()
    clock.advance(3)
    assert heartbeat("a") is HeartbeatAnswer.ACTIVE
    settle_ring()
    assert writable() == ["a"]
    assert owners() == before
    assert heartbeat("b") is HeartbeatAnswer.ACTIVE
    settle_ring()
    assert writable() == ["a", "b"]


def test_a_long_silent_instance_loses_its_shards_and_must_register_again(clock: ManualClock) -> None:
    register("a", "b")
    clock.advance(60)
    heartbeat("a")
    settle_ring()
    assert set(owners().values()) == {"a"}
    assert Instance.objects.get(name="b").left_at_ms == clock.now_ms
    assert heartbeat("b") is HeartbeatAnswer.UNKNOWN
    register("b")
    assert set(owners().values()) == {"a", "b"}


def test_how_long_silence_lasts_is_a_setting(clock: ManualClock, settings) -> None:  # type: ignore[no-untyped-def]
    settings.WRITER_SUSPECT_SECONDS, settings.WRITER_TIMEOUT_SECONDS = 1, 2
    register("a", "b")
    clock.advance(2)
    heartbeat("a")
    settle_ring()
    assert set(owners().values()) == {"a"}


def test_an_unchanged_ring_keeps_its_version(clock: ManualClock) -> None:
    ring = register("a", "b")
    assert settle_ring() == ring
    assert RingChange.objects.count() == 2


def test_an_operator_drains_an_instance_which_hears_of_it_at_its_heartbeat(clock: ManualClock) -> None:
    register("a", "b")
    assert drain_instance("b", actor="ada", reason="new disk")
    assert not drain_instance("b", actor="ada", reason="again")
    assert heartbeat("b") is HeartbeatAnswer.LEAVING
    assert set(owners().values()) == {"a"}
    assert "ada" in set(AuditEntry.objects.values_list("actor", flat=True))
    change = RingChange.objects.first()
    assert change is not None
    assert "new disk" in change.reason
    assert change.actor == "ada"


def test_each_zone_has_slots_of_its_own_and_loses_them_with_its_last_instance(clock: ManualClock) -> None:
    register("a", zone="north")
    register("b", zone="south")
    assert {zone for zone, _ in owners()} == {"", "north", "south"}
    leave("b")
    assert {zone for zone, _ in owners()} == {"", "north"}


def test_the_last_instance_leaves_an_empty_ring_and_the_next_begins_anew(clock: ManualClock) -> None:
    register("a")
    leave("a")
    assert owners() == {}
    assert current_ring().tables == {}
    assert set(register("b").tables[""]) == {"b"}


def test_a_ring_is_sized_ahead_of_a_growth(clock: ManualClock) -> None:
    register("a")
    assert size_ring(64, actor="ada", reason="sixteen are coming").shards == 64
    assert Slot.objects.filter(zone="").count() == 64
    assert register("b", "c").shards == 64
    with pytest.raises(RingRefused):
        size_ring(0, actor="ada", reason="")


@pytest.mark.parametrize(
    "registration",
    [
        Registration(name="", address="http://a:1"),
        Registration(name="a\n", address="http://a:1"),
        Registration(name="a", address="a:1"),
        Registration(name="a", address="http://a:1", tokens=0),
        Registration(name="a", address="http://a:1", zone="x" * 200),
    ],
)
def test_what_could_not_be_reached_or_written_down_is_refused(registration: Registration) -> None:
    with pytest.raises(InstanceRefused):
        register_instance(registration)
    assert not Instance.objects.exists()


def test_the_stores_copy_follows_and_never_goes_back(clock: ManualClock, store: ObjectStore) -> None:
    register("a")
    assert publish_current_ring(store)
    assert not publish_current_ring(store)
    ring = register("b")
    assert publish_current_ring(store)
    assert load_ring(signed(store)) == ring


def test_distributors_read_the_store_while_the_database_is_away_and_else_keep_the_last(
    clock: ManualClock, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = register("a", "b")
    assert read_ring(store) == ring
    assert read_ring(store, last=ring) is ring
    publish_current_ring(store)

    def away() -> Ring:
        raise DatabaseError("gone")

    monkeypatch.setattr(reading, "current_ring", away)
    assert read_ring(store) == ring
    broken = FailingStore(store, Fault("get", is_durable=True))
    assert read_ring(broken, last=ring) is ring
    assert read_ring(broken) is EMPTY_RING
