"""Recorded profiles of real programs, cached between runs so that the next demonstration starts in seconds."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from engine import recording
from engine.recording.files import Recording as RecordedFile
from engine.recording.files import read_recordings
from engine.recording.programs import WINDOW_MS, Program, available_programs, record_all
from webadmin.embedded.demo.plan import Recording

CONCURRENT_PROGRAMS = 2  # Programs recorded concurrently; more would mostly record waiting for each other.
UNFINISHED = "unfinished"


def ensure_recordings(folder: Path, seconds: float, on_recorded: Callable[[int, int], None]) -> list[Recording]:
    """Return the recordings of every program that can run here; record those that are not in ``folder``.

    ``seconds`` is the length of each recording; ``on_recorded`` is called with the programs done and their count.
    Raises RecordingFailed naming the program.
    """
    programs = available_programs()
    finished = folder / _key(programs, seconds)
    if not finished.is_dir():
        # Renamed once complete, so that an interrupted recording starts again.
        draft = folder / f"{UNFINISHED}-{finished.name}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for first in range(0, len(programs), CONCURRENT_PROGRAMS):
            record_all(
                programs[first : first + CONCURRENT_PROGRAMS], draft, seconds=seconds, parallel=CONCURRENT_PROGRAMS
            )
            on_recorded(min(first + CONCURRENT_PROGRAMS, len(programs)), len(programs))
        draft.rename(finished)
    return group_recordings(read_recordings(finished))


def group_recordings(files: Iterable[RecordedFile]) -> list[Recording]:
    """Group the windows by program and profile type, in recorded order."""
    windows: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for file in files:
        windows[file.service, file.profile_name].append(file.path)
    return [Recording(service=key[0], name=key[1], windows=tuple(paths)) for key, paths in sorted(windows.items())]


def _key(programs: Sequence[Program], seconds: float) -> str:
    """Return the cache key of recordings: the programs, the Python version, and the recorder's code."""
    commands = [(program.service, program.command) for program in programs]
    what = hashlib.sha256(repr((sys.version, commands, seconds, WINDOW_MS)).encode())
    for source in sorted(Path(recording.__file__).parent.rglob("*.py")):
        what.update(source.read_bytes())
    return what.hexdigest()[:16]
