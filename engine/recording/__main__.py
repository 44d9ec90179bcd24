"""Run a program under the recorder: ``python -m engine.recording --out DIR --service NAME -- PROGRAM ARGS``.

PROGRAM is a file, or ``-m MODULE``. After ``--seconds`` the program is interrupted by an exception; with ``--repeat``
it is restarted whenever it ends earlier.
"""

from __future__ import annotations

import argparse
import runpy
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from engine.recording.files import write_recordings
from engine.recording.sampler import Sampler

ALARM_REPEAT_SECONDS = 0.2
"""Interval at which the interruption is repeated, because a bare ``except`` in the program may catch it."""


OK, NOTHING_SEEN, FAILED = 0, 1, 2
"""Exit statuses: profiles written, no profiles, program failed (its profiles up to then are written)."""


class RecordingOver(BaseException):
    """The recording time is over; not an Exception, so that programs do not catch it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Record one program; return the exit status of the recorder, whatever that of the program."""
    options, program = _parse(sys.argv[1:] if arguments is None else list(arguments))
    sampler = Sampler(options.window_ms / 1000, with_memory=not options.without_memory)
    deadline = time.monotonic() + options.seconds
    sampler.start()
    try:
        has_failed = _run_until(program, deadline, repeat=options.repeat)
    finally:
        sampler.stop()
    written = write_recordings(options.out, options.service, sampler.windows)
    print(f"{options.service}: {len(written)} profiles in {len(sampler.windows)} windows", file=sys.stderr)
    return FAILED if has_failed else OK if written else NOTHING_SEEN


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m engine.recording", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the pprof files")
    parser.add_argument("--service", required=True, help="name of the recorded service")
    parser.add_argument("--window-ms", type=int, default=250, help="length of a window (default: 250)")
    parser.add_argument(
        "--seconds", type=float, default=8.0, help="stop the program after this many seconds (default: 8)"
    )
    parser.add_argument("--repeat", action="store_true", help="restart the program if it ends early")
    parser.add_argument("--without-memory", action="store_true", help="CPU and wall time only, for little overhead")
    split = list(arguments).index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split])
    program = list(arguments[split + 1 :])
    if not program or (program[0] == "-m" and len(program) == 1):
        parser.error("name a program after --: a file, or -m MODULE")
    return options, program


def _run_until(program: list[str], deadline: float, *, repeat: bool) -> bool:
    """Run the program until the deadline or its end; return whether it ended earlier with an exception."""
    signal.signal(signal.SIGALRM, _raise_over)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 0.001), ALARM_REPEAT_SECONDS)
    try:
        succeeded = _run(program)
        while repeat and succeeded and time.monotonic() < deadline:
            succeeded = _run(program)
        return not succeeded and time.monotonic() < deadline
    except RecordingOver:
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def _raise_over(_signal: int, frame: FrameType | None) -> None:
    """Interrupt the program; no effect between two runs and after the last."""
    if frame is not None and frame.f_code.co_filename != __file__:
        raise RecordingOver


def _run(program: list[str]) -> bool:
    """Run the program once in this process; return whether it ended without an exception."""
    try:
        if program[0] == "-m":
            sys.argv = [program[1], *program[2:]]
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(program)
            sys.path.insert(0, str(Path(program[0]).resolve().parent))
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            print(f"{' '.join(program)} ended with {ended.code}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001  # A program may fail in any way; its recording stays valid.
        print(f"{' '.join(program)} failed: {error!r}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
