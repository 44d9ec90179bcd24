"""How far the tasks of this machine's own Spark are: each says so in a small file, which the driver looks at.

Executors elsewhere have another folder; what they say is not seen, and only the beginning and the end are told.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from engine.protocol.messages import Progress

STEP_SHARE = 0.01
"""Share of a phase between two things said of one job."""


class ProgressFile:
    """The file of one job in a folder that driver and task share."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"lithify-progress-{name}"
        self._told: Progress | None = None

    def tell(self, progress: Progress) -> None:
        """Say how far the job is; as often as one likes, because only steps of some size are written."""
        told = self._told
        is_step = told is None or progress.done - told.done >= progress.total * STEP_SHARE
        if told is not None and progress.phase == told.phase and not is_step:
            return
        self._told = progress
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text(json.dumps([progress.done, progress.total, progress.phase]))
        os.replace(unfinished, self._path)

    def read(self) -> Progress | None:
        """Return what was told last, None if nothing was."""
        with suppress(OSError, ValueError):
            done, total, phase = json.loads(self._path.read_text())
            return Progress(done=done, total=total, phase=phase)
        return None

    def remove(self) -> None:
        """Forget what was told."""
        self._path.unlink(missing_ok=True)
