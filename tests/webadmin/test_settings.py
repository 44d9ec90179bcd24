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

from webadmin.base.database.deadlines import ProcessRole, set_limit
from webadmin.base.database.url import CONNECTION, BadDatabaseUrl, database_settings
from webadmin.base.home import kept_secret, private_folder

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
    assert {name: entry["OPTIONS"].pop(name) for name in CONNECTION} == CONNECTION
    assert tuple(entry[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")) == expected


def test_options_of_the_url_are_merged_with_ours_and_win() -> None:
    options = database_settings("postgresql://db/lithify?options=-c%20jit%3Doff&connect_timeout=60")["OPTIONS"]
    assert options["options"].startswith("-c idle_in_transaction_session_timeout=5min")
    assert options["options"].endswith(" -c jit=off")
    assert options["connect_timeout"] == "60"


@pytest.mark.parametrize(
    ("role", "seconds", "milliseconds", "answer_seconds"),
    [
        (ProcessRole.WEB, "", 10_000, 12),
        (ProcessRole.WRITER, "", 5_000, 7),
        (ProcessRole.CONTROL, "", 60_000, 62),
        (ProcessRole.WEB, "1.5", 1_500, 3.5),
    ],
)
def test_the_statements_of_a_process_are_limited_by_its_role(
    role: ProcessRole, seconds: str, milliseconds: int, answer_seconds: float
) -> None:
    entry = database_settings("postgresql://db/lithify")
    set_limit(entry, role, seconds)
    assert entry["OPTIONS"]["options"].endswith(f" -c statement_timeout={milliseconds}")
    assert entry["OPTIONS"]["answer_seconds"] == answer_seconds


def test_a_limit_in_the_url_is_kept_and_no_limit_can_be_set() -> None:
    own = database_settings("postgresql://db/lithify?options=-c%20statement_timeout%3D1h")
    unlimited, sqlite = database_settings("postgresql://db/lithify"), database_settings("sqlite:///x")
    for entry, seconds in ((own, ""), (unlimited, "0"), (sqlite, "")):
        before = dict(entry["OPTIONS"])
        set_limit(entry, ProcessRole.WEB, seconds)
        assert entry["OPTIONS"] == before


def test_a_limit_that_is_no_number_is_refused() -> None:
    with pytest.raises(BadDatabaseUrl, match="DATABASE_STATEMENT_SECONDS is 'ten'"):
        set_limit(database_settings("postgresql://db/lithify"), ProcessRole.WEB, "ten")


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


def test_an_installation_is_closed_to_other_users_of_the_machine(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / "tables").mkdir(mode=0o777)
    (home / "tables").chmod(0o777)
    (home / "lithify.sqlite3").touch(mode=0o644)
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "METRICS_TOKEN")}
    subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env=environment | {"LITHIFY_HOME": str(home)},
        umask=0,
        check=True,
        capture_output=True,
    )
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.iterdir())}
    closed = {"home": 0o700, "objects": 0o700, "lithify.sqlite3": 0o600, "secret_key": 0o600, "metrics_token": 0o600}
    assert {name: modes[name] for name in closed} == closed
    assert modes["tables"] == 0o777, "tenants write there"


def test_a_local_object_store_is_closed_to_other_users_wherever_it_is(tmp_path: Path) -> None:
    """Also by a link, and when it is not there yet; a folder that cannot be made stops no command."""
    there, linked, missing = tmp_path / "there", tmp_path / "linked", tmp_path / "not" / "yet"
    there.mkdir(mode=0o755)
    linked.symlink_to(there)
    (tmp_path / "file").touch()

    def check(url: str) -> None:
        subprocess.run(
            [sys.executable, "-c", "import webadmin.settings"],
            cwd=ROOT,
            env=os.environ | {"LITHIFY_HOME": str(tmp_path / "home"), "OBJECT_STORE_URL": url},
            umask=0,
            check=True,
        )

    for url, folder in ((there.as_uri(), there), (str(linked), there), (missing.as_uri(), missing)):
        there.chmod(0o755)
        check(url)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, url
    check((tmp_path / "file" / "objects").as_uri())


def test_a_shared_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert private_folder(tmp_path) == tmp_path
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777
