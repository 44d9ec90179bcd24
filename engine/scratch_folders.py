"""Folders for files that outlive no run: each is removed at its end, and those of killed runs by whoever comes next.

A folder's owner holds a lock on a file in it as long as its process lives, however that ends. Everything that makes or
sweeps folders below one parent takes turns by a lock of the parent, so that no folder is seen before its own lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "lithify-scratch-"
OWNER = "owner"
TURN = ".lithify-scratch-turn"


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Make a folder below ``parent`` for the ``with`` block; abandoned ones are removed first.

    What the caller may use is the empty folder ``files`` in it.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with _turn(parent):
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        owner = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(owner, fcntl.LOCK_EX)
    try:
        files = folder / "files"
        files.mkdir()
        yield files
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)


def sweep_scratch(parent: Path) -> int:
    """Remove the folders below ``parent`` whose owners are gone; return how many there were."""
    if not parent.is_dir():
        return 0
    with _turn(parent):
        return _sweep(parent)


def _sweep(parent: Path) -> int:
    swept = 0
    for folder in sorted(parent.glob(f"{PREFIX}*")):
        try:
            owner = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # it is just being removed by its owner
            continue
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
            swept += 1
        finally:
            os.close(owner)
    return swept


@contextlib.contextmanager
def _turn(parent: Path) -> Iterator[None]:
    turn = os.open(parent / TURN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield
    finally:
        os.close(turn)
