"""Settings from the environment: databases by URL, secrets made once, a clean start without any configuration."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from engine.settings.base import BadSetting
from engine.settings.listing import PROCESSES, url_text
from engine.settings.service import ServiceSettings
from tests.environments import set_only
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
        (ProcessRole.WEB, None, 10_000, 12),
        (ProcessRole.WRITER, None, 5_000, 7),
        (ProcessRole.CONTROL, None, 60_000, 62),
        (ProcessRole.WEB, 1.5, 1_500, 3.5),
    ],
)
def test_the_statements_of_a_process_are_limited_by_its_role(
    role: ProcessRole, seconds: float | None, milliseconds: int, answer_seconds: float
) -> None:
    entry = database_settings("postgresql://db/lithify")
    set_limit(entry, role, seconds)
    assert entry["OPTIONS"]["options"].endswith(f" -c statement_timeout={milliseconds}")
    assert entry["OPTIONS"]["answer_seconds"] == answer_seconds


def test_a_limit_in_the_url_is_kept_and_no_limit_can_be_set() -> None:
    own = database_settings("postgresql://db/lithify?options=-c%20statement_timeout%3D1h")
    unlimited, sqlite = database_settings("postgresql://db/lithify"), database_settings("sqlite:///x")
    for entry, seconds in ((own, None), (unlimited, 0), (sqlite, None)):
        before = dict(entry["OPTIONS"])
        set_limit(entry, ProcessRole.WEB, seconds)
        assert entry["OPTIONS"] == before


def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_STATEMENT_SECONDS", "ten")
    with pytest.raises(BadSetting, match="DATABASE_STATEMENT_SECONDS is 'ten'"):
        ServiceSettings.read()


def test_all_invalid_settings_are_in_one_error_without_secrets(tmp_path: Path) -> None:
    wrong = {"QUERY_BYTES": "8 apples", "HISTORY_DAYS": "-1", "DEBUG": "maybe", "DATABASE_STATEMENT_SECONDS": "ten"}
    environment = {**os.environ, **wrong, "LITHIFY_HOME": str(tmp_path), "SECRET_KEY": "never shown"}
    command = [sys.executable, str(ROOT / "manage.py"), "check"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("lithify: ")
    assert "QUERY_BYTES is '8 apples': expected a size such as" in ended.stderr
    assert "HISTORY_DAYS is '-1': expected" in ended.stderr
    assert "DEBUG is 'maybe': expected a valid boolean" in ended.stderr
    assert "DATABASE_STATEMENT_SECONDS is 'ten': expected a duration such as" in ended.stderr
    assert "never shown" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("QUERY_BYTES", "33554432", 32 << 20),
        ("QUERY_BYTES", "1.5 GiB", 3 << 29),
        ("QUERY_BYTES", "32MiB", 32 << 20),
        ("QUERY_SECONDS", "0.5", 0.5),
        ("QUERY_SECONDS", "1.5 min", 90.0),
        ("STALLED_AFTER_SECONDS", "15 min", 900),
        ("QUERY_LENGTH_SECONDS", "31 days", 31 * 86_400),
        ("HISTORY_DAYS", "30", 30),
        ("HISTORY_DAYS", "12 weeks", 84),
        ("HTTPS", "yes", True),
        ("ALLOWED_HOSTS", "a.example, b.example,", ["a.example", "b.example"]),
        ("LOG_LEVEL", "debug", "DEBUG"),
        ("QUERY_THREADS", "", 8),
    ],
)
def test_settings_are_typed_and_plain_numbers_have_the_unit_of_the_name(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    set_only(monkeypatch, {name: text})
    found = getattr(ServiceSettings.read(), name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("STALLED_AFTER_SECONDS", "0.5", "expected a whole number"),
        ("QUERY_SECONDS", "nan", "expected a duration such as 900"),
        ("QUERY_SECONDS", "1e999", "expected a finite duration"),
        ("QUERY_SECONDS", "5 lightyears", "expected a duration such as 900"),
        ("CREDENTIAL_REQUESTS_PER_SECOND", "inf", "expected a finite number"),
        ("OBJECT_STORE_URL", "file://elsewhere/x", "use file:///folder"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_the_name(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str
) -> None:
    set_only(monkeypatch, {name: text})
    with pytest.raises(BadSetting, match=f"^{name} is '{text}': .*{message}"):
        ServiceSettings.read()


def test_settings_are_listed_with_values_and_sources_and_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_only(
        monkeypatch,
        {
            "DATABASE_URL": "postgresql://ann:pass-1@db:5433/lithify?password=pass-2",
            "BROKER_URL": "redis://:pass-3@broker:6379/0",
            "SECRET_KEY": "pass-4",
            "LITHIFY_TOKEN_KEYS": "pass-5,pass-6",
            "WORKER_CREDENTIAL": "pass-7",
            "SPARK_REMOTE": "sc://spark:15002/;token=pass-8",
            "QUERY_BYTES": "1536 MiB",
        },
    )
    call_command("settings", "--json")
    printed = capsys.readouterr().out
    assert "pass-" not in printed
    rows = {(row["process"], row["name"]): row for row in json.loads(printed)["settings"]}
    service, node, _ = PROCESSES
    size = rows[service, "QUERY_BYTES"]
    assert (size["value"], size["unit"], size["source"]) == ("1536 MiB", "bytes", "environment")
    assert size["default"] == "8 GiB"
    assert rows[service, "DATABASE_URL"]["value"] == "postgresql://db:5433/lithify"
    assert rows[service, "BROKER_URL"]["value"] == "redis://broker:6379/0"
    assert rows[service, "SECRET_KEY"]["value"] == rows[node, "WORKER_CREDENTIAL"]["value"] == "(hidden)"
    assert rows[node, "SPARK_REMOTE"]["value"] == "sc://spark:15002/"
    assert (rows[service, "HISTORY_DAYS"]["value"], rows[service, "HISTORY_DAYS"]["source"]) == ("90 d", "default")
    call_command("settings")
    printed = capsys.readouterr().out
    assert "QUERY_BYTES = 1536 MiB  [environment]  maximum bytes that one query may read" in printed
    assert "pass-" not in printed


def test_invalid_settings_of_another_kind_of_process_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_only(monkeypatch, {"NODE_CAPACITY": "many", "SPARK_REMOTE": "sc://h/;token=pass-1"})
    with pytest.raises(CommandError, match="A compactor node: NODE_CAPACITY is 'many': expected a valid integer"):
        call_command("settings")
    printed = capsys.readouterr().out
    assert "NODE_CAPACITY = many" in printed
    assert "pass-1" not in printed


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://:a/b@h:1/0", "(hidden)"),
        ("redis://:a?b@h:1/0", "(hidden)"),
        ("sqlite:////var/x.sqlite3", "sqlite:////var/x.sqlite3"),
        ("pass-1", "(hidden)"),
    ],
)
def test_a_url_is_hidden_where_its_password_may_be_anywhere(url: str, text: str) -> None:
    assert url_text(url) == text


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


def test_without_configuration_database_and_stores_are_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_only(monkeypatch, {"LITHIFY_HOME": str(tmp_path / "home")})
    settings = ServiceSettings.read()
    assert database_settings(settings.DATABASE_URL)["NAME"] == str(tmp_path / "home/lithify.sqlite3")
    assert f"file://{tmp_path}/home/objects" == settings.OBJECT_STORE_URL
    assert f"file://{tmp_path}/home/tables" == settings.TABLES_URL
