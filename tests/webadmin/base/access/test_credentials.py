"""Worker credentials: shown once, kept as a hash, checked without telling what was wrong."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command

from webadmin.base.access.errors import CredentialRefused, NameTaken
from webadmin.base.access.models import AuditEntry, WorkerCredential
from webadmin.base.access.services import (
    check_worker_credential,
    intern_tenants,
    issue_worker_credential,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_secret_proves_the_credential_and_is_nowhere_in_the_database(db: None) -> None:
    issued = issue_worker_credential(name="node", actor="ann")
    assert check_worker_credential(wire_form=issued.wire_form, at=NOW) == issued.credential
    secret = issued.wire_form.split("_", 2)[2]
    assert secret not in str(WorkerCredential.objects.values().get())
    assert AuditEntry.objects.get().actor == "ann"


@pytest.mark.parametrize(
    "spoil", [lambda w: w[:-1], lambda w: w + "A", lambda w: w.upper(), lambda w: "", lambda w: f"\n{w}"]
)
def test_anything_else_proves_nothing(db: None, spoil) -> None:
    issued = issue_worker_credential(name="node", actor="ann")
    with pytest.raises(CredentialRefused):
        check_worker_credential(wire_form=spoil(issued.wire_form), at=NOW)


def test_a_name_is_given_once(db: None) -> None:
    issue_worker_credential(name="node", actor="ann")
    with pytest.raises(NameTaken, match="node"):
        issue_worker_credential(name="node", actor="ann")
    assert WorkerCredential.objects.count() == 1


def test_last_use_is_noted_once_a_minute(db: None) -> None:
    issued = issue_worker_credential(name="node", actor="ann")
    noted = []
    for seconds in (0, 30, 59, 61):
        check_worker_credential(wire_form=issued.wire_form, at=NOW + timedelta(seconds=seconds))
        noted.append(WorkerCredential.objects.get().last_used_at)
    assert noted == [NOW, NOW, NOW, NOW + timedelta(seconds=61)]


def test_the_command_prints_the_secret_and_nothing_else(db: None) -> None:
    out = io.StringIO()
    call_command("create_worker_credential", "node", stdout=out)
    assert check_worker_credential(wire_form=out.getvalue().strip(), at=NOW).name == "node"
    with pytest.raises(CommandError, match="another name"):
        call_command("create_worker_credential", "node")


def test_tenants_are_interned_once(db: None) -> None:
    first = intern_tenants(["b", "a", "b"])
    assert intern_tenants(["a", "c"])["a"] == first["a"]
    assert set(first) == {"a", "b"}
