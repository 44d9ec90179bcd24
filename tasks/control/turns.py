"""Lets one control task of a kind run at a time on a machine: what takes long must not take every thread there is."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = "turns"


@contextmanager
def only_one(home: Path, name: str) -> Iterator[bool]:
    """Yield whether nobody else has this turn in this home folder; it ends with the block, or with the process."""
    folder = home / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    turn = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(turn)
