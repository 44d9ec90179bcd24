"""Settings of the database by which a crash takes back what was confirmed: seen at each new connection, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.test import Client

from tests.webadmin.probes import probe
from tests.webadmin.service import Service
from webadmin.base.database import durability
from webadmin.base.database.url import database_settings
from webadmin.embedded.deployment.database import check_durability
from webadmin.embedded.deployment.findings import Level
from webadmin.progress.services import count_log


@pytest.fixture
def unsafe(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(durability, "_found", ("fsync=off",))
    settings.ALLOW_UNSAFE_DATABASE = False


@pytest.mark.parametrize(
    ("mode", "found"), [("full", ()), ("normal", ("synchronous=normal",)), ("off", ("synchronous=off",))]
)
def test_sqlite_below_full_is_unsafe(db: None, tmp_path: Path, mode: str, found: tuple[str, ...]) -> None:
    entry = database_settings(f"sqlite:///{tmp_path}/one.sqlite3?synchronous={mode}")
    other = DatabaseWrapper({**connection.settings_dict, **entry}, alias="other")
    other.connect()
    try:
        assert durability.unsafe_settings(other) == found
    finally:
        other.close()


def test_what_a_new_connection_has_is_kept_and_refused_unless_allowed(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(durability, "_found", ())
    assert durability.refusal() == ""
    connection.close()
    connection.ensure_connection()
    assert durability.refusal() == "", "allowed: the databases of tests are unsafe on purpose"
    settings.ALLOW_UNSAFE_DATABASE = False
    assert "=off" in durability.refusal()
    assert "ALLOW_UNSAFE_DATABASE=1" in durability.refusal()


@pytest.mark.parametrize("target", ["ROLE CURRENT_USER", "DATABASE"])
def test_what_was_set_for_the_role_or_the_database_is_noticed(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, settings: Any, target: str
) -> None:
    if connection.vendor != "postgresql":
        return
    settings.ALLOW_UNSAFE_DATABASE = False
    monkeypatch.setattr(durability, "_found", ())
    if target == "DATABASE":
        target = f'DATABASE "{connection.settings_dict["NAME"]}"'
    try:
        for value in ("on", "off", "on"):
            with connection.cursor() as cursor:
                cursor.execute(f"ALTER {target} SET synchronous_commit = {value}")
            connection.close()
            connection.ensure_connection()
            assert ("synchronous_commit=off" in durability.refusal()) == (value == "off")
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER {target} RESET synchronous_commit")
        connection.close()


def test_a_transaction_that_commits_early_is_not_meant(transactional_db: None) -> None:
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
    before = durability.unsafe_settings(connection)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('synchronous_commit', 'off', true)")
    assert durability.unsafe_settings(connection) == before
    connection.close()


def test_blocks_are_not_acknowledged(service: Service, client: Client, unsafe: None) -> None:
    from webadmin.base.access.services import issue_worker_credential

    secret = issue_worker_credential(name="writer", scopes=["blocks:add"], actor="test").wire_form
    answer = client.post(
        "/api/v1/blocks",
        b"",
        content_type="application/x-protobuf",
        headers={"Authorization": f"Bearer {secret}"},
    )
    assert (answer.status_code, answer.json()["code"]) == (503, "unsafe_database")
    assert "fsync=off" in answer.json()["message"]


def test_progressz_names_it(db: None, client: Client, unsafe: None) -> None:
    count_log()
    answer = probe("/progressz")
    assert (answer.status_code, answer.json()["blocker"]) == (503, "unsafe_database")


def test_check_deployment_finds_it(db: None, settings: Any) -> None:
    [allowed] = check_durability()
    settings.ALLOW_UNSAFE_DATABASE = False
    [refused] = check_durability()
    assert (allowed.level, refused.level) == (Level.WARNING, Level.ERROR)
    assert "=off" in refused.found
