"""Progress of tasks of local Spark: each task writes it to a small file that the driver reads.

Executors on other machines have another folder, so the driver reports only start and end of their jobs.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from engine.protocol.messages import Progress

STEP_SHARE = 0.01
"""Minimum share of a phase between two writes."""


class ProgressFile:
    """The file of one job in a folder that driver and task share."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"lithify-progress-{name}"
        self._written: Progress | None = None

    def write(self, progress: Progress) -> None:
        """Write the progress of the job; calls without a step of STEP_SHARE or a new phase write nothing."""
        written = self._written
        is_step = written is None or progress.done - written.done >= progress.total * STEP_SHARE
        if written is not None and progress.phase == written.phase and not is_step:
            return
        self._written = progress
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text(json.dumps([progress.done, progress.total, progress.phase]))
        os.replace(unfinished, self._path)

    def read(self) -> Progress | None:
        """Return the progress written last, or None."""
        with suppress(OSError, ValueError):
            done, total, phase = json.loads(self._path.read_text())
            return Progress(done=done, total=total, phase=phase)
        return None

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)
