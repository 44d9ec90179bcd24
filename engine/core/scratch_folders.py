"""Folders for files that outlive no run: each is removed at its end, and those of killed runs by whoever comes next.

A folder's owner holds a lock on a file in it as long as its process lives, however that ends. Everything that makes or
sweeps folders below one parent takes turns by a lock of the parent, so that no folder is seen before its own lock.
Owners who know what they will need claim it, so that several at once do not count on the same room of the disk.
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
OWNER = "owner"
CLAIM = "claim"
TURN = ".lithify-scratch-turn"
BLOCK_BYTES = 512


class ScratchFull(LithifyError):
    """The scratch folder of this worker has too little room for a merge; sizes in bytes, ``needed`` -1 if unknown."""

    code = "scratch_full"
    retryable = True

    def __init__(self, folder: str, needed: int, free: int) -> None:
        super().__init__(folder, needed, free)
        self.folder = folder
        self.needed = needed
        self.free = free

    def __str__(self) -> str:
        wanted = f"the merge needs {self.needed} bytes, " if self.needed >= 0 else ""
        return f"no room in the scratch folder {self.folder}: {wanted}{self.free} are free"


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Make a folder below ``parent`` for the ``with`` block; abandoned ones are removed first.

    What the caller may use is the empty folder ``files`` in it. That the disk is full is raised as ScratchFull.
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
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ScratchFull(str(folder), -1, shutil.disk_usage(parent).free) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)


def claim_room(files: Path, size: int) -> int:
    """Claim so many bytes of the disk for the owner of a scratch folder, if they are there; return how many are.

    What the owners of the other folders below this parent have claimed and not yet written is not there. The claim ends
    with the folder; a second one takes the place of the first.
    """
    own = files.parent
    with _turn(own.parent):
        _sweep(own.parent)
        claims = [_open_claim(folder) for folder in own.parent.glob(f"{PREFIX}*") if folder != own]
        free = shutil.disk_usage(files).free - sum(claims)
        if free >= size:
            (own / CLAIM).write_text(str(size))
        return free


def _open_claim(folder: Path) -> int:
    """Return how much of what a folder's owner has claimed is still to be written."""
    try:
        claimed = int((folder / CLAIM).read_text())
    except (OSError, ValueError):  # none is claimed, or it is just being removed
        return 0
    try:
        used = sum(path.stat().st_blocks * BLOCK_BYTES for path in (folder / "files").rglob("*"))
    except OSError:  # a file is just getting its name
        used = 0
    return max(0, claimed - used)


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
