"""A writer stays in the registry through pauses and outages, and removes no other writer after one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.db import OperationalError
from django.test import RequestFactory

from engine.placement.documents import encode_ring
from engine.placement.errors import UnsignedDocument
from engine.placement.publication import RING_KEY, load_ring
from engine.placement.signatures import SIGNATURE_BYTES
from engine.storage import ObjectStore
from tests.database import ManualClock
from tests.faults.failing_store import FailingStore, Fault
from tests.signed_documents import signed
from webadmin.console.pages import front_page
from webadmin.ingest.writer import membership
from webadmin.ingest.writer.membership import Membership
from webadmin.placement.models import Instance
from webadmin.placement.services.instances import Registration, current_ring, drain_instance
from webadmin.placement.services.read_ring import publish_current_ring

pytestmark = pytest.mark.django_db


class Fleet:
    """Writers whose clocks and the database's go together."""

    def __init__(self, clock: ManualClock, store: ObjectStore, *names: str) -> None:
        self._clock = clock
        self.members = {
            name: Membership(
                Registration(name=name, address=f"http://{name}:1"), store, clock=lambda: clock.now_ms / 1000
            )
            for name in names
        }

    def pass_seconds(self, seconds: int, *silent: str) -> None:
        for _ in range(seconds):
            self._clock.advance(1)
            for name, member in self.members.items():
                if name not in silent:
                    member.beat()


def writable() -> list[str]:
    return [instance.id for instance in current_ring().instances if instance.is_writable()]


@pytest.fixture(autouse=True)
def open_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's transaction lives in the connection that a beat would close."""
    monkeypatch.setattr(membership, "close_old_connections", lambda: None)


def test_the_others_notice_a_dead_one_within_five_seconds(clock: ManualClock, store: ObjectStore) -> None:
    fleet = Fleet(clock, store, "a", "b", "c")
    fleet.pass_seconds(5)
    assert writable() == ["a", "b", "c"]
    fleet.pass_seconds(5, "b")
    assert writable() == ["a", "c"]
    published = load_ring(signed(store))
    assert published is not None
    assert published == current_ring()


def test_one_that_was_paused_beyond_its_heartbeat_is_back_at_once(clock: ManualClock, store: ObjectStore) -> None:
    fleet = Fleet(clock, store, "a", "b")
    fleet.pass_seconds(5)
    fleet.pass_seconds(70, "b")
    assert Instance.objects.get(name="b").left_at_ms is not None
    fleet.pass_seconds(1)
    assert writable() == ["a", "b"]


def test_after_a_pause_of_its_own_it_does_not_take_the_others_for_dead(clock: ManualClock, store: ObjectStore) -> None:
    fleet = Fleet(clock, store, "a", "b")
    fleet.pass_seconds(5)
    clock.advance(30)  # both were paused; a is the first to wake up
    version = current_ring().version
    fleet.members["a"].beat()
    assert current_ring().version == version
    fleet.pass_seconds(5)
    assert writable() == ["a", "b"]
    assert current_ring().version == version


def test_an_outage_of_the_database_moves_nothing(
    clock: ManualClock, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(clock, store, "a", "b", "c")
    fleet.pass_seconds(5)
    before = current_ring()

    def away(name: str, **_: str) -> None:
        raise OperationalError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(membership, "heartbeat", away)
        fleet.pass_seconds(90)
        assert all(member.is_registered for member in fleet.members.values())
    fleet.pass_seconds(10)
    assert current_ring() == before


def test_a_store_that_is_away_gets_the_ring_later(clock: ManualClock, store: ObjectStore) -> None:
    fleet = Fleet(clock, FailingStore(store, Fault("put", call=1)), "a")
    fleet.pass_seconds(1)
    assert load_ring(signed(store)) is None
    fleet.pass_seconds(12)
    assert load_ring(signed(store)) == current_ring()


def test_a_store_that_refuses_segments_is_on_the_front_page_until_it_accepts_them(
    clock: ManualClock, store: ObjectStore, rf: RequestFactory
) -> None:
    error = [""]
    registration = Registration(name="a", address="http://a:1")
    member = Membership(registration, store, clock=lambda: clock.now_ms / 1000, store_error=lambda: error[0])
    told = []
    for text in ("", "no space left", ""):
        error[0] = text
        member.beat()
        member.beat()
        notices = [notice.text for notice in front_page(rf.get("/"), {})["notices"]]
        told.append([text for text in notices if text.startswith("Pushes are refused: ")])
    [words] = told[1]
    assert words.endswith("could not store segments at the last attempt: no space left.")
    assert (told[0], told[2]) == ([], [])


def test_a_leaving_instance_is_out_of_the_ring_and_a_drained_one_is_notified(
    clock: ManualClock, store: ObjectStore
) -> None:
    fleet = Fleet(clock, store, "a", "b")
    fleet.pass_seconds(5)
    drain_instance("b", actor="ada", reason="test")
    fleet.pass_seconds(1)
    assert fleet.members["b"].is_leave_requested
    assert not fleet.members["a"].is_leave_requested
    fleet.members["b"].leave()
    assert Instance.objects.get(name="b").left_at_ms is not None
    assert load_ring(signed(store)) == current_ring()


def test_a_ring_that_somebody_else_wrote_into_the_bucket_diverts_nothing(
    clock: ManualClock, store: ObjectStore
) -> None:
    Fleet(clock, store, "a").pass_seconds(1)
    ring = current_ring()
    [own] = ring.instances
    forged = replace(ring, version=ring.version + 9, instances=(replace(own, address="http://theirs"),))
    for attempt in (encode_ring(forged), b"", encode_ring(forged) + bytes(SIGNATURE_BYTES)):
        store.put(RING_KEY, attempt)
        with pytest.raises(UnsignedDocument):
            load_ring(signed(store))
    assert publish_current_ring(store)
    assert load_ring(signed(store)) == ring
