"""One program of a stack: start, readiness, stop.

Each run leads its own process group, so that Ctrl-C in a terminal reaches only the supervisor, and child processes
(workers, a JVM) are killed with it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

LAST_LINES = 15  # Enough for the end of a Python traceback.
LINE_BYTES_MAX = 64 << 10  # Bounds the memory for a line without an end.


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Definition of a program.

    It is ready when its output matched ``ready_line`` (a regular expression) and ``probe`` returns True.
    ``environment`` is added to that of this process, ``without`` names variables to remove. A program that
    ``runs_once`` is ready after exit code 0. One that ``waits`` starts when all before it are ready, any other starts
    together with the one before. ``stop_seconds`` is the time from SIGTERM to SIGKILL.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    ready_line: str = ""
    probe: Callable[[], bool] | None = None
    ready_seconds: float = 60
    stop_seconds: float = 20
    runs_once: bool = False
    waits: bool = True


class Run:
    """One process of a program, from start to exit.

    ``on_change`` is called from a thread of the run when the process exits or its ready line appears.
    """

    def __init__(self, program: Program, on_line: Callable[[str, str], None], on_change: Callable[[], None]) -> None:
        self.program = program
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.exit_code: int | None = None
        self.started_at = time.monotonic()
        self._on_line = on_line
        self._on_change = on_change
        self._ready_line = re.compile(program.ready_line) if program.ready_line else None
        self._line_seen = self._ready_line is None
        self._process = subprocess.Popen(
            program.command,
            env=_environment(program),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"read-{program.name}", daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, name=f"wait-{program.name}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Return the process id, also after the exit."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Return whether the process has exited and its group is empty."""
        return self.exit_code is not None

    def is_ready(self) -> bool:
        """Return whether the program is ready; see ``Program``."""
        if self.program.runs_once:
            return self.exit_code == 0
        return not self.has_ended() and self._line_seen and (self.program.probe is None or self.program.probe())

    def terminate(self) -> None:
        """Send SIGTERM to the program, which stops its own children."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the whole process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while raw := output.readline(LINE_BYTES_MAX):
                line = raw.decode(errors="replace").rstrip("\r\n")
                self.last_lines.append(line)
                self._on_line(self.program.name, line)
                if not self._line_seen and self._ready_line is not None and self._ready_line.search(line):
                    self._line_seen = True
                    self._on_change()

    def _wait(self) -> None:
        code = self._process.wait()
        self.kill()  # Kill the processes that the program left in its group.
        self._reader.join(timeout=5)  # Log the last output before its exit is reported.
        self.exit_code = code
        self._on_change()


def _environment(program: Program) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name not in program.without}
    return {**ours, **program.environment}
