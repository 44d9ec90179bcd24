"""Scratch folders: removed when a run ends; those of killed runs are removed by the next run.

The owner of a folder holds a file lock in it, which the operating system releases when the process ends. Creating and
sweeping folders is serialised by a lock on the parent folder, so that no folder is visible before it is locked. Owners
that know their needs reserve disk space, so that concurrent runs do not rely on the same free space.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.core.errors import LithifyError

PREFIX = "lithify-scratch-"
OWNER_LOCK = "owner"
RESERVATION = "reservation"
PARENT_LOCK = ".lithify-scratch-lock"
BLOCK_BYTES = 512


class ScratchFull(LithifyError):
    """The disk of the scratch folder has too little free space; sizes in bytes, ``needed`` is -1 if unknown."""

    code = "scratch_full"
    retryable = True

    def __init__(self, folder: str, needed: int, free: int) -> None:
        super().__init__(folder, needed, free)
        self.folder = folder
        self.needed = needed
        self.free = free

    def __str__(self) -> str:
        needed = f"the merge needs {self.needed} bytes, " if self.needed >= 0 else ""
        return f"not enough space in the scratch folder {self.folder}: {needed}{self.free} bytes are free"


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Create a folder below ``parent`` for the ``with`` block, after removing abandoned ones.

    Yields the empty folder ``files`` in it. Raises ScratchFull in place of the OSErrors of a full disk or quota.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with _parent_lock(parent):
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        owner = os.open(folder / OWNER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(owner, fcntl.LOCK_EX)
    try:
        files = folder / "files"
        files.mkdir()
        yield files
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ScratchFull(str(folder), -1, shutil.disk_usage(parent).free) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)


def reserve_space(files: Path, size: int) -> int:
    """Reserve ``size`` bytes of disk space for a scratch folder if they are free; return the free bytes.

    Space that other folders below the same parent have reserved and not written yet does not count as free. A
    reservation ends with its folder; a second one replaces the first.
    """
    own = files.parent
    with _parent_lock(own.parent):
        _sweep(own.parent)
        reserved = [_unused_reservation(folder) for folder in own.parent.glob(f"{PREFIX}*") if folder != own]
        free = shutil.disk_usage(files).free - sum(reserved)
        if free >= size:
            (own / RESERVATION).write_text(str(size))
        return free


def _unused_reservation(folder: Path) -> int:
    """Return how many reserved bytes of a folder are not written yet."""
    try:
        reserved = int((folder / RESERVATION).read_text())
    except (OSError, ValueError):  # no reservation, or the folder is being removed
        return 0
    try:
        used = sum(path.stat().st_blocks * BLOCK_BYTES for path in (folder / "files").rglob("*"))
    except OSError:  # a file was renamed in the meantime
        used = 0
    return max(0, reserved - used)


def sweep_scratch(parent: Path) -> int:
    """Remove the folders below ``parent`` whose owners have ended; return their number."""
    if not parent.is_dir():
        return 0
    with _parent_lock(parent):
        return _sweep(parent)


def _sweep(parent: Path) -> int:
    swept = 0
    for folder in sorted(parent.glob(f"{PREFIX}*")):
        try:
            owner = os.open(folder / OWNER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # its owner is removing it
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
def _parent_lock(parent: Path) -> Iterator[None]:
    lock = os.open(parent / PARENT_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
