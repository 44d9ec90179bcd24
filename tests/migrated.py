"""Databases that have all tables already: migrated once for each state of the migrations, then copied.

The originals lie in ``.lithify/``, beside what ``./dev`` builds; who makes one holds the others up.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.metadata
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".lithify/migrated"
PACKAGES = ("django", "django-celery-beat")
"""Whose migrations come besides ours."""


@functools.cache
def digest() -> str:
    """Tell one state of all migrations from another."""
    found = hashlib.sha256()
    for file in sorted((ROOT / "webadmin").rglob("migrations/*.py")):
        found.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    found.update(repr([importlib.metadata.version(package) for package in PACKAGES]).encode())
    return found.hexdigest()[:16]


def original(name: str, make: Callable[[Path], None]) -> Path:
    """Return the original of this name for the migrations as they are; ``make`` it at a path if there is none."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = FOLDER / f"{name}-{digest()}"
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            for old in FOLDER.glob(f"{name}-*"):
                old.unlink()
            draft = FOLDER / f"{name}.draft"
            draft.unlink(missing_ok=True)
            make(draft)
            draft.rename(found)
    return found


def migrate(url: str) -> None:
    """Migrate a database in a process of its own."""
    environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "webadmin.settings"}
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def put_sqlite(file: Path) -> None:
    """Put a migrated database at a path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(original("sqlite", _make_sqlite), file)


def _make_sqlite(file: Path) -> None:
    migrate(f"sqlite:///{file}")
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what is copied is one file
    connection.close()


def fill_postgresql(server: Any, database: str) -> None:
    """Make all tables in an empty database of an embedded server."""
    dump = original("postgresql", lambda file: _dump_postgresql(server, database, file))
    if not _has_tables(server, database):
        _client(server, "psql", database, "--file", str(dump))


def _dump_postgresql(server: Any, database: str, file: Path) -> None:
    migrate(server.get_uri(database=database))
    _client(server, "pg_dump", database, "--no-owner", "--file", str(file))


def _has_tables(server: Any, database: str) -> bool:
    query = "SELECT 1 FROM pg_tables WHERE tablename = 'django_migrations'"
    return _client(server, "psql", database, "--tuples-only", "--command", query).strip() == "1"


def _client(server: Any, program: str, database: str, *arguments: str) -> str:
    url = server.get_uri(database=database)
    options = ("--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1") if program == "psql" else ()
    command = [str(server.bin_path / program), *options, *arguments, url]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
