"""Run the programs of a stack: ordered start, restart on exit, ordered stop.

One loop waits on one queue; threads of the runs and signal handlers only wake it. Programs start in the given order,
each after those before are ready unless it does not wait for them, and stop in reverse order, one by one.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from webadmin.embedded.errors import ProgramFailed
from webadmin.embedded.process_log import ProcessLog
from webadmin.embedded.program import Program, Run

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a stack."""
PROBE_SECONDS = 0.1  # Between two probes of a program that is starting.
RESTART_FIRST_SECONDS = 0.5
RESTART_LAST_SECONDS = 30.0
STEADY_SECONDS = 60.0  # After this uptime, the next restart has the first delay again.


def restart_delay(deaths: int) -> float:
    """Return the seconds to wait before the next start after ``deaths`` (≥ 1) consecutive exits."""
    return float(min(RESTART_FIRST_SECONDS * 2 ** min(deaths - 1, 16), RESTART_LAST_SECONDS))


class Supervisor:
    """Keep the programs of a stack running until a stop is requested.

    ``start``, ``watch`` and ``stop`` are called in this sequence, from any one thread each; ``request_stop`` may be
    called from anywhere, also from a signal handler. After a second request ``stop`` kills the programs without
    waiting.
    """

    def __init__(
        self, programs: Sequence[Program], log: ProcessLog, *, delay: Callable[[int], float] = restart_delay
    ) -> None:
        self._programs = tuple(programs)
        self._log = log
        self._delay = delay
        self._runs: dict[str, Run] = {}
        self._deaths: dict[str, int] = {}
        self._restart_at: dict[str, float] = {}
        self._stop_requests = 0
        # ``SimpleQueue.put`` is reentrant: a signal handler may interrupt ``get``.
        self._wake: SimpleQueue[None] = SimpleQueue()

    @property
    def is_stopping(self) -> bool:
        """Return whether a stop was requested."""
        return self._stop_requests > 0

    def request_stop(self) -> None:
        """Make ``start`` or ``watch`` return; a second call makes ``stop`` kill instead of wait."""
        self._stop_requests += 1
        self._wake.put(None)

    def pids(self) -> dict[str, int]:
        """Return the process id of every running program."""
        return {name: run.pid for name, run in self._runs.items() if not run.has_ended()}

    def start(self) -> bool:
        """Start every program in order; return False if a stop was requested meanwhile.

        Raises ProgramFailed, with everything stopped again, if one exits or is not ready before its timeout.
        """
        starting: list[Program] = []
        try:
            for program in self._programs:
                if program.waits and not self._wait_until_ready(starting):
                    return False
                starting = [] if program.waits else starting
                self._begin(program)
                starting.append(program)
            return self._wait_until_ready(starting)
        except BaseException:
            self.stop()
            raise

    def watch(self) -> None:
        """Restart programs that exit, until a stop is requested."""
        while not self.is_stopping:
            self._note_deaths()
            self._restart_due()
            self._pause(self._seconds_to_next_restart())

    def stop(self) -> None:
        """Stop every program in reverse start order, and wait for each."""
        for program in reversed(self._programs):
            run = self._runs.get(program.name)
            if run is not None and not run.has_ended():
                self._end(run)

    def _begin(self, program: Program) -> None:
        try:
            self._runs[program.name] = Run(program, self._log.write, lambda: self._wake.put(None))
        except OSError as error:
            raise ProgramFailed(program.name, f"could not be started ({error})") from error

    def _wait_until_ready(self, programs: Sequence[Program]) -> bool:
        """Wait until all programs are ready; return False if a stop was requested meanwhile."""
        waited_for = list(programs)
        while waited_for and not self.is_stopping:
            ready = [program for program in waited_for if self._check_start(program)]
            waited_for = [program for program in waited_for if program not in ready]
            if waited_for:
                self._pause(PROBE_SECONDS)
        return not waited_for

    def _check_start(self, program: Program) -> bool:
        """Return whether the program is ready. Raises ProgramFailed if it exited or its timeout has passed."""
        run = self._runs[program.name]
        if run.is_ready():
            self._log.say(f"{program.name} is {'done' if program.runs_once else 'ready'}")
            return True
        if run.has_ended():
            raise ProgramFailed(program.name, f"ended with exit code {run.exit_code}", run.last_lines)
        if time.monotonic() > run.started_at + program.ready_seconds:
            raise ProgramFailed(program.name, f"was not ready in {program.ready_seconds:g} s", run.last_lines)
        return False

    def _note_deaths(self) -> None:
        for program in self._programs:
            name, run = program.name, self._runs[program.name]
            if program.runs_once or name in self._restart_at or not run.has_ended():
                continue
            was_steady = time.monotonic() - run.started_at >= STEADY_SECONDS
            self._deaths[name] = 1 if was_steady else self._deaths.get(name, 0) + 1
            self._plan_restart(name, f"ended with exit code {run.exit_code}")

    def _plan_restart(self, name: str, reason: str) -> None:
        delay = self._delay(self._deaths[name])
        self._restart_at[name] = time.monotonic() + delay
        self._log.say(f"{name} {reason}: starting it again in {delay:g} s")

    def _restart_due(self) -> None:
        now = time.monotonic()
        for program in self._programs:
            if self._restart_at.get(program.name, now + 1) > now:
                continue
            del self._restart_at[program.name]
            try:
                self._begin(program)
            except ProgramFailed as error:
                self._deaths[program.name] += 1
                self._plan_restart(program.name, error.reason)

    def _seconds_to_next_restart(self) -> float | None:
        if not self._restart_at:
            return None
        return max(0.0, min(self._restart_at.values()) - time.monotonic())

    def _end(self, run: Run) -> None:
        deadline = time.monotonic() + run.program.stop_seconds
        run.terminate()
        while not run.has_ended():
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self._stop_requests > 1:
                self._log.say(f"{run.program.name} did not stop by itself: killed")
                self._kill(run)
                return
            self._pause(remaining)
        self._log.say(f"{run.program.name} stopped")

    def _kill(self, run: Run) -> None:
        run.kill()
        while not run.has_ended():
            self._pause(None)

    def _pause(self, seconds: float | None) -> None:
        """Wait for the next event, at most ``seconds``."""
        try:
            self._wake.get(timeout=seconds)
        except Empty:
            return
