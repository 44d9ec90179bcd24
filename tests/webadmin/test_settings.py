"""Settings from the environment: databases by URL, secrets made once, a clean start without any configuration."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.core.management import call_command

from webadmin.database.url import BadDatabaseUrl, database_settings
from webadmin.home import kept_secret

ROOT = Path(__file__).parents[2]


def test_an_sqlite_url_gives_a_file_in_wal_mode_with_immediate_transactions() -> None:
    entry = database_settings("sqlite:////var/lib/x.sqlite3")
    assert entry["NAME"] == "/var/lib/x.sqlite3"
    assert entry["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in entry["OPTIONS"]["init_command"]
    assert "synchronous=FULL" in entry["OPTIONS"]["init_command"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://ann:p%40ss@db:5433/lithify", ("lithify", "ann", "p@ss", "db", "5433", {})),
        ("postgres:///lithify?host=/run/pg", ("lithify", "", "", "/run/pg", "", {})),
        ("postgresql://postgres@/x?host=/s&sslmode=require", ("x", "postgres", "", "/s", "", {"sslmode": "require"})),
    ],
)
def test_a_postgresql_url_is_taken_apart(url: str, expected: tuple) -> None:
    entry = database_settings(url)
    assert "idle_in_transaction_session_timeout=5min" in entry["OPTIONS"].pop("options")
    assert tuple(entry[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")) == expected


def test_what_sessions_are_told_can_be_replaced() -> None:
    entry = database_settings("postgresql://db/lithify?options=-c%20jit%3Doff")
    assert entry["OPTIONS"] == {"options": "-c jit=off"}


@pytest.mark.parametrize(
    "url", ["", "mysql://x/y", "sqlite://", "sqlite:///", "sqlite:///x?synchronous=maybe", "postgresql://host"]
)
def test_a_url_that_names_no_database_is_refused(url: str) -> None:
    with pytest.raises(BadDatabaseUrl):
        database_settings(url)


def test_a_secret_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "key"
    gate = threading.Barrier(8)

    def make(_: int) -> str:
        gate.wait(30)
        return kept_secret(path)

    with ThreadPoolExecutor(8) as pool:
        secrets = set(pool.map(make, range(8)))
    assert secrets == {kept_secret(path)}
    assert len(secrets.pop()) >= 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_no_model_change_is_without_its_migration(db: None) -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.parametrize("https", ["0", "1"])
def test_a_machine_without_any_setting_starts_clean(tmp_path: Path, https: str) -> None:
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG", "VIRTUAL_ENV"}}
    environment = kept | {"LITHIFY_HOME": str(tmp_path / "home"), "HTTPS": https}
    check = [sys.executable, str(ROOT / "manage.py"), "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(check, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_no_process_of_the_service_imports_pandas_when_it_starts() -> None:
    program = "import django, sys; django.setup(); import tasks.beat, webadmin.urls; sys.exit('pandas' in sys.modules)"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "webadmin.settings"}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
