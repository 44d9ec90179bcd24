"""A stack that runs in the background of a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from webadmin.base.home import private_file
from webadmin.embedded.process_log import ProcessLog
from webadmin.embedded.program import Program
from webadmin.embedded.supervisor import STOP_SIGNALS, Supervisor


@contextmanager
def running_stack(programs: Sequence[Program], log_file: Path) -> Iterator[Supervisor]:
    """Start the programs, log to a file, restart them on exit; stop them in order when the block is left.

    All of it runs in a thread of its own: Ctrl-C interrupts the main thread anywhere, which could lose track of a
    process that was just started. Raises ProgramFailed if a program does not become ready.
    """
    with private_file(log_file).open("a") as stream:
        supervisor = Supervisor(programs, ProcessLog(stream, [program.name for program in programs], coloured=False))
        started: Future[None] = Future()
        thread = threading.Thread(target=_supervise, args=(supervisor, started), name="supervise-stack")
        try:
            with _signals_held():
                thread.start()
            started.result()
            yield supervisor
        finally:
            supervisor.request_stop()
            try:
                if thread.ident is not None:
                    thread.join()
            except KeyboardInterrupt:  # A second Ctrl-C kills the programs.
                supervisor.request_stop()
                thread.join()
                raise


@contextmanager
def _signals_held() -> Iterator[None]:
    """Block stop signals in the block: a thread whose start was interrupted can be neither used nor joined."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _supervise(supervisor: Supervisor, started: Future[None]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # Programs inherit blocked signals.
    try:
        supervisor.start()
    except Exception as error:  # noqa: BLE001 - any error is reported by the command
        started.set_exception(error)
        return
    started.set_result(None)
    supervisor.watch()
    supervisor.stop()
