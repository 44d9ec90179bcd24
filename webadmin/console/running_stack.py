"""The stack in the background of a command that has something else to do meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from webadmin.console.process_log import ProcessLog
from webadmin.console.program import Program
from webadmin.console.supervisor import Supervisor


@contextmanager
def running_stack(programs: Sequence[Program], log_file: Path) -> Iterator[Supervisor]:
    """Start the programs, log to a file, keep them alive; stop them in order when the block is left.

    Raises ProgramFailed when one does not get ready.
    """
    with log_file.open("a") as stream:
        supervisor = Supervisor(programs, ProcessLog(stream, [program.name for program in programs], coloured=False))
        supervisor.start()
        watcher = threading.Thread(target=supervisor.watch, name="watch-stack")
        watcher.start()
        try:
            yield supervisor
        finally:
            supervisor.request_stop()
            watcher.join()
            supervisor.stop()
