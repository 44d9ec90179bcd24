"""Real processes for tests: started with a readiness deadline, stopped by pid, their last words kept.

``Processes`` starts any command; ``start_redis`` and friends know how the real components of Lithify start. Use one
``Processes`` per fixture, as a context manager: whatever is still running at the end is killed with its whole group.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from webadmin.embedded.embedded_redis import redis_command
from webadmin.serving import GUNICORN_SETTINGS

ROOT = Path(__file__).parents[1]
LOOPBACK = "127.0.0.1"
READY_SECONDS = 60.0
STOP_SECONDS = 30.0
CHECK_SECONDS = 0.05
"""Pause between two looks at something that gives no event; what decides is the state, not the pause."""


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], object], what: str, seconds: float = READY_SECONDS) -> None:
    """Wait until the condition holds; AssertionError naming ``what`` after the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(CHECK_SECONDS)


class Process:
    """A running command. ``lines`` is its output so far, standard output and error together."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path = ROOT) -> None:
        self.name = name
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._popen = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"read-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def is_running(self) -> bool:
        """Tell whether the process has not ended."""
        return self._popen.poll() is None

    def wait_for_line(self, pattern: str, seconds: float = READY_SECONDS, count: int = 1) -> str:
        """Wait until so many lines match; return the last of them."""
        expression = re.compile(pattern)

        def matching() -> list[str]:
            return [line for line in self.lines if expression.search(line)]

        with self._said:
            self._said.wait_for(lambda: len(matching()) >= count or not self._reader.is_alive(), timeout=seconds)
            assert len(matching()) >= count, f"{self.name} did not say {pattern!r}:\n{self.story()}"
            return matching()[count - 1]

    def terminate(self, seconds: float = STOP_SECONDS) -> int:
        """Send SIGTERM and wait for the end; return the exit code."""
        self._popen.terminate()
        return self.wait(seconds)

    def kill(self) -> None:
        """End the process and its group at once, as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait(STOP_SECONDS)

    def wait(self, seconds: float) -> int:
        """Wait for the end; return the exit code."""
        try:
            code = self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {seconds:g} s:\n{self.story()}") from None
        self._reader.join(STOP_SECONDS)
        return code

    def story(self) -> str:
        """The last lines, for a failing test's message."""
        return "\n".join(self.lines[-60:])

    def close(self) -> None:
        """Kill what is left and give everything back."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        self._reader.join(STOP_SECONDS)

    def _read(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as output:
            for line in output:
                with self._said:
                    self.lines.append(line.rstrip("\n"))
                    self._said.notify_all()
        with self._said:
            self._said.notify_all()


@contextlib.contextmanager
def paused(process: Process) -> Iterator[None]:
    """Stop a process's clockwork for the length of a ``with``, as a busy machine might."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


class Processes:
    """Starts processes and ends all of them at the end of its ``with``; unless ``quiet``, prints the output of each."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._running: list[Process] = []
        self._quiet = quiet

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._running):
            process.close()
            if not self._quiet:  # pytest shows this for a failing test only
                print(f"--- {process.name} ({process.pid}) said:\n{process.story()}")

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path = ROOT
    ) -> Process:
        """Start a command in a folder; the caller waits for whatever makes it ready."""
        process = Process(name, command, environment or {}, folder)
        self._running.append(process)
        return process

    def start_python(
        self, name: str, *arguments: str, environment: Mapping[str, str] | None = None, folder: Path = ROOT
    ) -> Process:
        """Start this Python with arguments; modules come from the folder first."""
        return self.start(name, [sys.executable, *arguments], environment, folder)

    def start_redis(self, port: int = 0) -> tuple[Process, str]:
        """Start a Redis that keeps nothing; return it with its broker URL."""
        port = port or free_port()
        with tempfile.TemporaryDirectory(prefix="lithify-redis-") as folder:
            process = self.start("redis", redis_command(Path(folder), port=port))
            self.wait_until_answers(process, lambda: answers_redis(port))
        return process, f"redis://{LOOPBACK}:{port}/0"

    def start_web(
        self, environment: Mapping[str, str], folder: Path = ROOT, *, threads: int = 4
    ) -> tuple[Process, str]:
        """Start a build's web process under gunicorn; return it with its address. The database must be migrated."""
        port = free_port()
        process = self.start_python(
            "web",
            *("-m", "gunicorn", "--config", GUNICORN_SETTINGS, "--bind", f"{LOOPBACK}:{port}"),
            *("--workers", "1", "--threads", str(threads), "--graceful-timeout", "5"),
            environment=environment,
            folder=folder,
        )
        self.wait_until_answers(process, lambda: answers_http(f"http://{LOOPBACK}:{port}/healthz"))
        return process, f"http://{LOOPBACK}:{port}"

    def wait_until_answers(self, process: Process, answers: Callable[[], bool]) -> None:
        """Wait until a process answers; AssertionError with its last words if it ends or takes too long."""
        wait_until(lambda: answers() or not process.is_running(), f"{process.name} answers")
        assert process.is_running(), f"{process.name} ended:\n{process.story()}"


def answers_redis(port: int) -> bool:
    """Tell whether a Redis answers PING at this port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def answers_http(url: str) -> bool:
    """Tell whether a GET of this URL is answered with success."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
