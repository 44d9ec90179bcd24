"""What a process knows of revoked secrets when the database is away: the last list that it read, if that is signed."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError
from django.test import RequestFactory
from django.utils import timezone

from engine.storage import ObjectStore, StorageError
from tests.processes import wait_until
from webadmin.base import senders as senders_module
from webadmin.base.access import revocations as published
from webadmin.base.access.credential_changes import (
    PUBLISHED_LATER,
    revoke_credential,
    rotate_credential,
    set_credential_expiry,
)
from webadmin.base.access.models import RevokedSecret
from webadmin.base.access.revocations import KEY, Revocations, publish_revocations, refresh_published
from webadmin.base.access.scopes import SCOPE_PUSH
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.push_rejected import PushRejected
from webadmin.base.senders import Senders
from webadmin.ingest import distributor as distributor_module
from webadmin.ingest.distributor import Distributor


def push(senders: Senders, secret: str) -> str:
    """Return what a push with this secret is answered: "" if it is accepted, else the reason."""
    request = RequestFactory().post("/ingest", headers={"Authorization": f"Bearer {secret}"})
    try:
        senders.identify(request)
    except PushRejected as error:
        return error.reason
    return ""


@pytest.fixture
def database_away(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function after which the senders' checks find no database, as if their last check was half a minute ago."""

    def away() -> None:
        def refuse(**_: object) -> None:
            raise DatabaseError("connection refused")

        monkeypatch.setattr(senders_module, "prove_credential", refuse)
        monkeypatch.setattr(senders_module, "FRESH_S", 0.0)

    return away


def pusher(name: str = "shop", **options: Any) -> str:
    return issue_worker_credential(name=name, scopes=[SCOPE_PUSH, "tenant:acme"], actor="test", **options).wire_form


def test_a_revoked_credential_is_refused_though_the_database_goes_away(
    db: None, store: ObjectStore, database_away: Any
) -> None:
    known = Revocations(store)
    senders, revoked, other = Senders(known), pusher(), pusher("other")
    assert [push(senders, secret) for secret in (revoked, other)] == ["", ""]
    assert revoke_credential(name="shop", actor="test").notes == []
    database_away()
    known.refresh()
    assert [push(senders, secret) for secret in (revoked, other)] == ["database_away", ""]


def test_the_list_is_read_while_a_refresh_waits_for_the_database(
    db: None, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, ends, answers = threading.Event(), [], threading.Event()

    def refresh(self: Distributor, *, rules_too: bool = True) -> None:
        if threading.current_thread() is not threading.main_thread():
            waits.set()
            answers.wait(60)

    monkeypatch.setattr(Distributor, "refresh", refresh)
    monkeypatch.setattr(distributor_module, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(distributor_module, "REVOCATIONS_SECONDS", 0.01)
    monkeypatch.setattr(distributor_module.atexit, "register", ends.append)
    made = distributor_module._started()
    try:
        assert waits.wait(60)
        pusher()
        revoke_credential(name="shop", actor="test")
        secret = RevokedSecret.objects.get().secret_hash
        wait_until(lambda: made.revocations.is_revoked(secret), "the list is read")
    finally:
        answers.set()
        ends[0]()


def test_a_secret_ended_by_a_rotation_is_refused_and_the_new_one_is_not(
    db: None, store: ObjectStore, database_away: Any
) -> None:
    known = Revocations(store)
    senders, old = Senders(known), pusher()
    assert push(senders, old) == ""
    new = rotate_credential(name="shop", overlap=timedelta(0), actor="test").secret
    assert push(senders, new) == ""
    database_away()
    known.refresh()
    assert [push(senders, old), push(senders, new)] == ["database_away", ""]


def test_a_known_credential_expires_though_the_database_is_away(
    db: None, store: ObjectStore, database_away: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    senders, secret = Senders(Revocations(store)), pusher()
    set_credential_expiry(name="shop", expires_at=timezone.now() + timedelta(hours=1), actor="test")
    assert push(senders, secret) == ""
    database_away()
    assert push(senders, secret) == ""
    later = timezone.now() + timedelta(hours=1)
    monkeypatch.setattr(senders_module.timezone, "now", lambda: later)
    assert push(senders, secret) == "database_away"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda envelope: b"not JSON",
        lambda envelope: b"[]",
        lambda envelope: json.dumps(envelope | {"signature": "0" * 64}).encode(),
        lambda envelope: json.dumps(envelope | {"document": '{"revoked": {}}'}).encode(),
        lambda envelope: None,
    ],
)
def test_the_last_revocation_list_stays_in_use_when_the_stored_one_is_lost_or_damaged(
    db: None, store: ObjectStore, database_away: Any, spoil: Any
) -> None:
    known = Revocations(store)
    senders, revoked, other = Senders(known), pusher(), pusher("other")
    assert [push(senders, secret) for secret in (revoked, other)] == ["", ""]
    revoke_credential(name="shop", actor="test")
    known.refresh()
    database_away()
    spoiled = spoil(json.loads(store.get(KEY)))
    if spoiled is None:
        store.delete(KEY)
    else:
        store.put(KEY, spoiled)
    known.refresh()
    assert [push(senders, secret) for secret in (revoked, other)] == ["database_away", ""]
    assert Revocations(store)._revoked == {}


def test_a_list_that_others_signed_is_not_believed(db: None, store: ObjectStore, settings: Any) -> None:
    pusher()
    revoke_credential(name="shop", actor="test")
    hashed = RevokedSecret.objects.get().secret_hash
    settings.TOKEN_KEYS = ["a new key", *settings.TOKEN_KEYS]
    assert _read(store).is_revoked(hashed), "signed with an older key in use"
    settings.TOKEN_KEYS = ["another installation's key"]
    assert not _read(store).is_revoked(hashed)


def _read(store: ObjectStore) -> Revocations:
    found = Revocations(store)
    found.refresh()
    return found


def test_a_list_that_could_not_be_written_is_reported_and_written_later(
    db: None, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pusher()

    def fail(key: str, data: bytes) -> None:
        raise StorageError("put", key, "the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "put", fail)
        assert revoke_credential(name="shop", actor="test").notes == [PUBLISHED_LATER]
    assert refresh_published() == 1
    assert _read(store).is_revoked(RevokedSecret.objects.get().secret_hash)


def test_concurrent_writers_of_the_list_lose_no_revocation(
    db: None, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    RevokedSecret.objects.create(secret_hash="a" * 64, revoked_at=timezone.now())
    original, calls = published._sign, []

    def sign_after_another(revoked: dict[str, float]) -> bytes:
        calls.append(revoked)
        if len(calls) == 1:  # the other process revokes and publishes between our read and our write
            RevokedSecret.objects.create(secret_hash="b" * 64, revoked_at=timezone.now())
            store.put(published.KEY, original(published._current_rows()))
        return original(revoked)

    monkeypatch.setattr(published, "_sign", sign_after_another)
    assert publish_revocations()
    found = _read(store)
    assert [found.is_revoked("a" * 64), found.is_revoked("b" * 64)] == [True, True]


def test_entries_are_published_for_a_day(db: None, store: ObjectStore) -> None:
    RevokedSecret.objects.create(secret_hash="a" * 64, revoked_at=timezone.now() - timedelta(days=2))
    assert refresh_published() == 0
    assert not RevokedSecret.objects.exists()
