"""Python programs in forks of a process that has set up Django, which takes seconds of processor time each time.

``WarmPython`` starts that process for an environment. Each program runs in a child of its own, which begins as one just
started would after ``django.setup()``: without connections, threads or caches of earlier programs.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import traceback
import weakref
from collections.abc import Mapping, Sequence

from tests.processes import Processes

READY = "warm python is ready"


class WarmPython:
    """Runs programs in an environment until ``processes`` end, or ``close``."""

    def __init__(self, processes: Processes, environment: Mapping[str, str]) -> None:
        folder = tempfile.mkdtemp(prefix="warm-python-")  # short, as names of sockets must be, and private
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._socket_file = f"{folder}/socket"
        command = ("-m", "tests.warm_python", self._socket_file)
        self._process = processes.start_python("warm python", *command, environment=environment)

    def run(self, *arguments: str, seconds: float, **environment: str) -> str:
        """Run a program as Python would with these arguments; return its output. AssertionError if it fails.

        ``environment`` has further variables, which settings are not read from.
        """
        self._process.wait_for_line(READY)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            connection.connect(self._socket_file)
            with connection.makefile("rw") as stream:
                stream.write(json.dumps([arguments, environment]) + "\n")
                stream.flush()
                code, output, errors = json.loads(stream.readline())
        assert code == 0, f"{' '.join(arguments)}:\n{output}{errors}"
        return str(output)

    def close(self) -> None:
        """End the process with its children."""
        self._process.close()


def _serve(socket_file: str) -> None:
    import django

    django.setup()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the children that answer are not waited for
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(socket_file)
        listener.listen()
        print(READY, flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    with contextlib.suppress(OSError):  # the caller has closed the connection
                        _answer(connection)
                    os._exit(0)


def _answer(connection: socket.socket) -> None:
    """Read the arguments of a program, run it, and write its exit code and output."""
    with connection.makefile("rw") as stream, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        arguments, environment = json.loads(stream.readline())
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            os.environ.update(environment)
            os._exit(_run(arguments))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        stream.write(json.dumps([code, *texts]) + "\n")


def _run(arguments: Sequence[str]) -> int:
    """Run ``-c CODE …`` or ``FILE …``; return the exit code."""
    code = 0
    try:
        if arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = list(arguments)
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001  shown as Python would
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    _serve(sys.argv[1])
