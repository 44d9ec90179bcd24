"""One program of a stack: how it is started, when it is ready, how it is stopped.

Each run is the leader of a process group of its own, so that Ctrl-C in a terminal reaches the supervisor only, and
so that whatever a program started (workers, a Java machine) can be ended with it.
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

LAST_LINES = 15  # enough to hold a Python traceback's end
LINE_BYTES_MAX = 64 << 10  # a program that never ends its line must not fill our memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run. It is ready when ``ready_line`` (a regular expression) was said and ``probe`` answers True.

    ``environment`` is added to ours, ``without`` names variables it must not see. A program that ``runs_once`` is ready
    when it has ended with exit code 0. One that ``waits`` starts when all before it are ready, one that does not starts
    together with the one before. ``stop_seconds`` is how long it may take to stop by itself after SIGTERM.
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
    """One process of a program, from its start to its end.

    ``on_change`` is called from a thread of the run when the process ended or its ready line came.
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
        """The process id, also after the end."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Tell whether the process has ended and everything of its group is gone."""
        return self.exit_code is not None

    def is_ready(self) -> bool:
        """Tell whether the program may be relied on; see ``Program``."""
        if self.program.runs_once:
            return self.exit_code == 0
        return not self.has_ended() and self._line_seen and (self.program.probe is None or self.program.probe())

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the program itself; it stops its own children in its own way."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the whole process group at once."""
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
        self.kill()  # what the program left behind in its group
        self._reader.join(timeout=5)  # its last words belong into the log before the news of its end
        self.exit_code = code
        self._on_change()


def _environment(program: Program) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name not in program.without}
    return {**ours, **program.environment}
