"""What distributors read: the newest rules there are, from the database or the store, and never older ones again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.db import DatabaseError

from engine.placement.documents import encode_rules
from engine.placement.errors import BadDocument, UnsignedDocument
from engine.placement.model import PlacementRules
from engine.placement.publication import RULES_KEY, history_key, load_rules, publish_rules
from engine.placement.signatures import SignedStore
from engine.storage.local import LocalStore
from engine.storage.model import StorageError
from tests.faults.failing_store import FailingStore, Fault
from tests.signed_documents import signed
from tests.webadmin.placement.conftest import UNIT, Placement
from webadmin.placement.rule_models import RulesHead
from webadmin.placement.services import read_rules as module
from webadmin.placement.services.read_rules import read_rules


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch):
    """Return a function that takes the database away."""

    class Away:
        @property
        def objects(self):
            raise DatabaseError("away")

    return lambda: monkeypatch.setattr(module, "RulesHead", Away())


def test_the_databases_rules_are_read(placement: Placement) -> None:
    placement.write("acme", "web", UNIT)
    placement.round()
    assert read_rules(FailingStore(placement.store, Fault("get", is_durable=True))) == placement.rules()


def test_nothing_new_is_the_same_object(placement: Placement) -> None:
    placement.round()
    rules = read_rules(placement.store)
    assert read_rules(placement.store, last=rules) is rules
    placement.round()
    assert read_rules(placement.store, last=rules).version == 2


def test_while_the_database_is_away_the_stores_copy_is_read(placement: Placement, outage) -> None:
    placement.round()
    outage()
    assert read_rules(placement.store).version == 1


def test_while_both_are_away_the_last_rules_stay(placement: Placement, outage) -> None:
    placement.round()
    rules = read_rules(placement.store)
    outage()
    assert read_rules(FailingStore(placement.store, Fault("get", is_durable=True)), last=rules) is rules


@pytest.mark.row("L17")
def test_older_rules_are_ignored(placement: Placement, outage) -> None:
    placement.round()
    placement.round()
    rules = read_rules(placement.store)
    newer = replace(rules, version=9, created_at_ms=rules.created_at_ms + 1)
    assert read_rules(placement.store, last=newer) is newer
    outage()
    assert read_rules(placement.store, last=newer) is newer


@pytest.mark.row("placement-property-14")
def test_later_versions_of_an_earlier_time_are_ignored(store: LocalStore, db: None) -> None:
    last = PlacementRules(version=3, created_at_ms=5_000)
    publish_rules(signed(store), PlacementRules(version=4, created_at_ms=4_000))
    assert read_rules(store, last=last) is last


@pytest.mark.row("L18")
def test_missing_rules_are_empty_rules(store: LocalStore, db: None) -> None:
    assert read_rules(store) == PlacementRules()


@pytest.mark.row("L19")
def test_unreadable_rules_are_an_error_at_the_start(store: LocalStore, db: None) -> None:
    for folder in (store, signed(store)):
        folder.put(RULES_KEY, b"\xff\xff")
        with pytest.raises(BadDocument):
            read_rules(store)
    with pytest.raises(StorageError):
        read_rules(FailingStore(store, Fault("get")))


def test_a_damaged_row_is_passed_over_for_the_stores_copy(placement: Placement) -> None:
    placement.round()
    RulesHead.objects.update(document=b"\xff\xff")
    assert read_rules(placement.store).version == 1


def test_rules_that_somebody_else_wrote_into_the_bucket_are_refused(store: LocalStore, db: None) -> None:
    """Signed with another key, or not at all: what was in force stays."""
    last = PlacementRules(version=3, created_at_ms=5_000)
    forged = PlacementRules(version=9, created_at_ms=9_000)
    publish_rules(SignedStore(store, ["a key of theirs"]), forged)
    assert read_rules(store, last=last) is last
    store.put(RULES_KEY, encode_rules(forged))
    assert read_rules(store, last=last) is last
    with pytest.raises(UnsignedDocument, match="LITHIFY_TOKEN_KEYS"):
        read_rules(store)


def test_a_round_replaces_rules_that_somebody_else_wrote(placement: Placement) -> None:
    placement.round()
    placement.store.put(RULES_KEY, encode_rules(PlacementRules(version=99, created_at_ms=2**43)))
    placement.store.put(history_key(2), b"theirs")
    placement.round()
    assert load_rules(signed(placement.store)) == placement.rules()
    assert placement.rules().version == 2
