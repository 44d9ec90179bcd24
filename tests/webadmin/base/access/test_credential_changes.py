"""Credentials after they were issued: rotation, expiry, revocation; audited; in the admin, by command, over REST."""

from __future__ import annotations

import io
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.object_stores import CREDENTIALS
from tests.webadmin.hostile.conftest import Caller
from webadmin.base.access import revocations
from webadmin.base.access.credential_changes import (
    PUBLISHED_LATER,
    create_credential,
    revoke_credential,
    rotate_credential,
    set_credential_expiry,
)
from webadmin.base.access.errors import CredentialChangeRefused, CredentialRefused, UnknownCredential
from webadmin.base.access.models import AuditEntry, RevokedSecret, WorkerCredential
from webadmin.base.access.queries import expiring_credential_count
from webadmin.base.access.services import check_worker_credential, issue_worker_credential
from webadmin.lanes.catalog.api.access_keys import issue_access_key

HOUR = timedelta(hours=1)


def is_accepted(secret: str, at: datetime | None = None) -> bool:
    try:
        check_worker_credential(wire_form=secret, at=at or timezone.now())
    except CredentialRefused:
        return False
    return True


def test_after_a_rotation_both_secrets_work_until_the_old_one_ends(db: None) -> None:
    old = issue_worker_credential(name="node", actor="ann").wire_form
    new = rotate_credential(name="node", overlap=HOUR, actor="bob").secret
    assert [is_accepted(old), is_accepted(new)] == [True, True]
    assert not is_accepted(old, timezone.now() + HOUR)
    assert is_accepted(new, timezone.now() + HOUR)
    assert old.split("_")[1] == new.split("_")[1], "the id of an access key stays"
    third = rotate_credential(name="node", overlap=HOUR, actor="bob").secret
    assert [is_accepted(secret) for secret in (old, new, third)] == [False, True, True]
    assert AuditEntry.objects.filter(actor="bob", action="rotate_worker_credential").count() == 2


def test_a_rotation_without_overlap_revokes_the_old_secret(db: None) -> None:
    old = issue_worker_credential(name="node", actor="ann").wire_form
    new = rotate_credential(name="node", overlap=timedelta(0), actor="bob").secret
    assert (is_accepted(old), is_accepted(new)) == (False, True)
    assert RevokedSecret.objects.count() == 1
    with pytest.raises(CredentialChangeRefused):
        rotate_credential(name="node", overlap=timedelta(days=91), actor="bob")


def test_a_credential_ends_at_its_expiry_and_warns_before(db: None) -> None:
    now = timezone.now()
    secret = issue_worker_credential(name="node", actor="ann", expires_at=now + 30 * 24 * HOUR).wire_form
    rotated = rotate_credential(name="node", overlap=80 * 24 * HOUR, actor="ann").secret
    assert [is_accepted(each, now + 29 * 24 * HOUR) for each in (secret, rotated)] == [True, True]
    assert [is_accepted(each, now + 30 * 24 * HOUR) for each in (secret, rotated)] == [False, False]
    assert expiring_credential_count(now) == 0
    assert expiring_credential_count(now + 17 * 24 * HOUR) == 1
    set_credential_expiry(name="node", expires_at=None, actor="ann")
    assert is_accepted(rotated, now + 31 * 24 * HOUR)
    assert expiring_credential_count(now + 17 * 24 * HOUR) == 0
    with pytest.raises(CredentialChangeRefused, match="revoke"):
        set_credential_expiry(name="node", expires_at=now - HOUR, actor="ann")


def test_a_revoked_credential_frees_its_name(db: None) -> None:
    old = issue_worker_credential(name="node", actor="ann").wire_form
    previous = rotate_credential(name="node", actor="ann").secret
    revoke_credential(name="node", actor="bob", why="lost laptop")
    new = create_credential(name="node", scopes=["jobs:poll"], expires_at=None, actor="ann").secret
    assert [is_accepted(secret) for secret in (old, previous, new)] == [False, False, True]
    assert AuditEntry.objects.get(actor="bob").detail == {"why": "lost laptop"}
    revoke_credential(name="node", actor="bob")
    with pytest.raises(UnknownCredential):
        revoke_credential(name="node", actor="bob")
    assert WorkerCredential.objects.count() == 2


def test_dry_runs_change_nothing(db: None) -> None:
    secret = issue_worker_credential(name="node", actor="ann").wire_form
    audited = AuditEntry.objects.count()
    revoke_credential(name="node", actor="bob", is_dry_run=True)
    set_credential_expiry(name="node", expires_at=timezone.now() + HOUR, actor="bob", is_dry_run=True)
    assert not rotate_credential(name="node", overlap=timedelta(0), actor="bob", is_dry_run=True).secret
    assert not create_credential(name="b", scopes=["read"], expires_at=None, actor="bob", is_dry_run=True).secret
    assert is_accepted(secret, timezone.now() + 2 * HOUR)
    assert (WorkerCredential.objects.count(), AuditEntry.objects.count()) == (1, audited)


def run(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("credentials", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_the_command_lists_rotates_expires_and_revokes(db: None) -> None:
    old = issue_worker_credential(name="node", actor="ann").wire_form
    key = issue_access_key(name="books", tenant="acme", may_write=True, actor="ann")
    rotated = run("rotate", "books", "--overlap-hours", "0")
    assert rotated["access_key_id"] == key.access_key_id
    assert is_accepted(f"{rotated['access_key_id']}_{rotated['secret_access_key']}")
    assert not is_accepted(f"{key.access_key_id}_{key.secret_access_key}")
    soon = timezone.now() + HOUR
    run("expire", "node", "--expires-at", soon.isoformat())
    listed = {each["name"]: each["warning"] for each in run("list")["credentials"]}
    assert listed == {"books": "", "node": "expires soon"}
    assert not is_accepted(old, soon)
    run("revoke", "node")
    assert [each["name"] for each in run("list")["credentials"]] == ["books"]
    with pytest.raises(CommandError, match="no credential named 'node'"):
        run("revoke", "node")


def test_commands_that_create_say_why_in_the_audit_log(db: None) -> None:
    call_command("create_worker_credential", "node", "--why", "a new machine", stdout=io.StringIO())
    call_command("catalog", "access-key", "books", "--tenant", "acme", "--why", "a new reader", stdout=io.StringIO())
    told = AuditEntry.objects.filter(action="issue_worker_credential").values_list("target", "detail__why")
    assert dict(told) == {"node": "a new machine", "books": "a new reader"}


def test_the_api_creates_rotates_and_revokes(db: None) -> None:
    manager = Caller("credentials:manage", name="manager")
    about = {"why": "a test", "name": "books"}
    made = manager.post("/api/v1/credentials", about | {"scopes": ["catalog:read", "tenant:acme"]}).json()
    assert is_accepted(made["secret"])
    rotated = manager.post("/api/v1/credentials/rotate", about | {"overlap_hours": 1}).json()
    assert is_accepted(f"{rotated['access_key_id']}_{rotated['secret_access_key']}")
    expired = manager.post("/api/v1/credentials/expire", about | {"expires_at": "2999-01-01T00:00:00Z"})
    assert expired.json()["credentials"][0]["expires_at"] == "2999-01-01T00:00:00+00:00"
    assert manager.post("/api/v1/credentials/expire", about).status_code == 400
    listing = manager.send("get", "/api/v1/credentials")
    assert {each["name"] for each in listing.json()["credentials"]} == {"books", "manager"}
    assert "hash" not in listing.content.decode()
    assert manager.post("/api/v1/credentials/revoke", about).status_code == 200
    assert manager.post("/api/v1/credentials/revoke", about).json()["code"] == "unknown_credential"
    assert not is_accepted(made["secret"])
    assert not is_accepted(rotated["secret"])
    actions = AuditEntry.objects.filter(actor="credential:manager").values_list("action", flat=True)
    entries = AuditEntry.objects.filter(actor="credential:manager")
    assert {entry.detail["why"] for entry in entries} == {"a test"}
    assert sorted(actions) == [
        "issue_worker_credential",
        "revoke_worker_credential",
        "rotate_worker_credential",
        "set_credential_expiry",
    ]


def test_a_rotation_that_is_sent_again_rotates_once(db: None) -> None:
    browser = Client()
    browser.force_login(User.objects.create(username="ann", is_staff=True, is_superuser=True))
    issue_worker_credential(name="node", actor="ann")
    place = reverse("admin:access_workercredential_action", args=["rotate"])
    form = {"why": "w", "ids": str(WorkerCredential.objects.get().pk), "overlap_hours": "24"}
    previewed = browser.post(place, form | {"step": "preview"}).context["previewed"]
    order = form | {"step": "apply", "previewed": previewed}
    assert "secret" in browser.post(place, order).content.decode()
    rotated = WorkerCredential.objects.get()
    again = browser.post(place, order)
    assert "The preview is outdated" in again.content.decode()
    assert WorkerCredential.objects.get().secret_hash == rotated.secret_hash
    assert WorkerCredential.objects.get().previous_secret_hash == rotated.previous_secret_hash


@pytest.mark.parametrize("scope", ["Tenant:acme", "tenant:", "tenant:a/b", "operat", "tenant", ""])
def test_an_unknown_scope_is_refused(db: None, scope: str) -> None:
    with pytest.raises(CredentialChangeRefused, match="there is no scope"):
        create_credential(name="node", scopes=["operate", scope], expires_at=None, actor="ann")
    assert not WorkerCredential.objects.exists()


def test_a_new_secret_is_shown_though_the_object_store_hangs(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    issue_worker_credential(name="node", actor="ann")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.OBJECT_STORE_URL = f"s3://bucket?endpoint=http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(revocations, "PUBLISH_SECONDS", 0.2)
        monkeypatch.setattr(revocations, "_publisher", ThreadPoolExecutor(1))
        outcome = rotate_credential(name="node", overlap=timedelta(0), actor="ann")
    assert is_accepted(outcome.secret)
    assert outcome.notes == [PUBLISHED_LATER]


def test_the_admin_shows_a_new_secret_once_and_revokes(db: None) -> None:
    browser = Client()
    browser.force_login(User.objects.create(username="ann", is_staff=True, is_superuser=True))
    place = "admin:access_workercredential_action"
    form = {"why": "a test", "name": "node", "scopes": "jobs:poll", "step": "apply"}
    answer = browser.post(reverse(place, args=["create"]), form)
    credential = WorkerCredential.objects.get()
    [secret] = set(re.findall(r"lw_[0-9a-f]{12}_[\w-]{43}", answer.content.decode()))
    assert is_accepted(secret)
    assert "no-store" in answer.headers["Cache-Control"]
    chosen = {"why": "a test", "ids": str(credential.pk), "step": "apply"}
    rotated = browser.post(reverse(place, args=["rotate"]), chosen | {"overlap_hours": "0"})
    assert rotated.status_code == 200
    assert not is_accepted(secret)
    assert browser.post(reverse(place, args=["revoke"]), chosen).status_code == 302
    credential.refresh_from_db()
    assert credential.revoked_at is not None
    entries = AuditEntry.objects.filter(actor="ann")
    assert [entry.detail["why"] for entry in entries] == ["a test"] * 3
