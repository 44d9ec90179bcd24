"""Lock of control tasks: one of a kind runs at a time on a machine, so that long tasks do not occupy all threads."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = "task-locks"


@contextmanager
def task_lock(home: Path, name: str) -> Iterator[bool]:
    """Yield whether the lock ``name`` of this home folder was free; hold it to the end of the block or the process."""
    folder = home / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)
