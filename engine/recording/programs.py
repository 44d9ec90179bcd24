"""The programs shipped for recording: realistic work with libraries of every installation.

Each runs in its own process under ``python -m engine.recording``. Its working directory is a scratch folder, and it
writes files by relative paths only.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.core.errors import LithifyError
from engine.recording.files import Recording, read_recordings

WINDOW_MS = 250
START_SECONDS_MAX = 120.0
"""Time limit beyond the recording, for start-up and for writing files."""

_WORKLOADS = "engine.recording.workloads"
_ENGINE = Path(__file__).parents[1]
_KERNEL = _ENGINE / "formats" / "pprof" / "_pprof.pyx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to record: its service name, its command, and the module and file that it requires."""

    service: str
    command: tuple[str, ...]
    needs: str
    purpose: str
    source: Path | None = None


class RecordingFailed(LithifyError):
    """The program of ``service`` could not be recorded; ``output`` is its output."""

    code = "recording_failed"

    def __init__(self, service: str, output: str) -> None:
        super().__init__(service, output)
        self.service = service
        self.output = output

    def __str__(self) -> str:
        return f"recording {self.service} failed: {self.output.strip()[-2000:]}"


PROGRAMS = (
    Program(
        service="code-search",
        command=("-m", f"{_WORKLOADS}.source_analysis"),
        needs="ast",
        purpose="tokens, trees and bytecode of the standard library",
    ),
    Program(
        service="order-store",
        command=("-m", f"{_WORKLOADS}.order_store"),
        needs="sqlite3",
        purpose="orders through JSON, decimals, SQLite, mail and XML",
    ),
    Program(
        service="sales-report",
        command=("-m", f"{_WORKLOADS}.sales_report"),
        needs="pandas",
        purpose="joins, pivots and Parquet files with pandas and pyarrow",
    ),
    Program(
        service="storage-gateway",
        command=("-m", f"{_WORKLOADS}.storage_gateway"),
        needs="botocore",
        purpose="S3 and SQS calls prepared, signed and parsed by botocore",
    ),
    Program(
        service="kernel-compiler",
        # Cython deletes its output file before writing it, even a device.
        command=("-m", "cython", "-3", "--force", "--output-file", "kernel.c", str(_KERNEL)),
        needs="cython",
        source=_KERNEL,
        purpose="Cython compiling a kernel of this project",
    ),
    Program(
        service="package-index",
        command=("-m", "pip", "--disable-pip-version-check", "check"),
        needs="pip",
        purpose="pip checking the installed packages",
    ),
)


def available_programs() -> tuple[Program, ...]:
    """Return the shipped programs that this installation can run; always includes the first four."""
    return tuple(
        program
        for program in PROGRAMS
        if importlib.util.find_spec(program.needs) is not None and (program.source is None or program.source.exists())
    )


def record(
    program: Program, directory: Path, *, seconds: float, window_ms: int = WINDOW_MS, with_memory: bool = True
) -> list[Recording]:
    """Record a program for ``seconds`` into ``directory``. Raises RecordingFailed if it writes no recording."""
    return record_all([program], directory, seconds=seconds, window_ms=window_ms, with_memory=with_memory)


def record_all(
    programs: Sequence[Program],
    directory: Path,
    *,
    seconds: float,
    window_ms: int = WINDOW_MS,
    with_memory: bool = True,
    parallel: int = 2,
) -> list[Recording]:
    """Record programs, a few at a time; return all recordings under ``directory`` sorted by time.

    The programs' scratch folders are created in ``directory`` and deleted.
    """
    options = ["--out", str(directory.resolve()), "--seconds", str(seconds), "--window-ms", str(window_ms), "--repeat"]
    options += [] if with_memory else ["--without-memory"]
    for first in range(0, len(programs), parallel):
        _record_concurrently(programs[first : first + parallel], directory, options, seconds)
    return read_recordings(directory)


def _record_concurrently(programs: Sequence[Program], directory: Path, options: Sequence[str], seconds: float) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=directory) as scratch:
        started = []
        try:
            for program in programs:
                folder = Path(scratch) / program.service
                folder.mkdir()
                output = Path(scratch) / f"{program.service}.txt"
                started.append((program, output, _start(program, options, folder, output)))
            for program, output, process in started:
                _await(program, process, output, seconds + START_SECONDS_MAX)
        finally:
            for _, _, process in started:
                process.kill()
                process.wait()


def _start(program: Program, options: Sequence[str], folder: Path, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "engine.recording", "--service", program.service, *options, "--"]
    path = os.pathsep.join(filter(None, [str(_ENGINE.parent), os.environ.get("PYTHONPATH", "")]))
    with output.open("wb") as sink:
        return subprocess.Popen(
            [*command, *program.command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": path},
        )


def _await(program: Program, process: subprocess.Popen[bytes], output: Path, seconds_max: float) -> None:
    try:
        status = process.wait(seconds_max)
    except subprocess.TimeoutExpired as error:
        raise RecordingFailed(program.service, f"no end after {seconds_max} s") from error
    if status != 0:
        raise RecordingFailed(program.service, output.read_text(errors="replace"))
