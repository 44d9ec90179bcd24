"""Opens files and folders by their whole path and follows no symbolic link in any component of it.

Tenants write below some stores themselves, so any name there can become a link at any moment. Each component is opened
relative to the descriptor of its parent with ``O_NOFOLLOW``: what was checked is what is used. Folders on the way need
the permission to search only, not to read. ``openat2`` of Linux does the same in one call; whatever it refuses, or a
kernel that does not have it, is left to the walk, which knows the component and the reason (decision 0055).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

SEARCH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Enough to open what is in a folder. Systems without ``O_PATH`` need the permission to read it, too."""
READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Needed to list a folder and to sync it."""
READ_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Opening a FIFO returns at once, too: look at what it is before reading."""

OPENAT2 = 437
"""The number of the system call, the same on x86-64 and ARM; glibc has no function for it."""
AT_FDCWD = -100
RESOLVE_NO_SYMLINKS = 0x04
NO_DESCRIPTOR = -1

_HOW_BYTES = 24
_HOWS = {flags: (ctypes.c_uint64 * 3)(flags, 0, RESOLVE_NO_SYMLINKS) for flags in (SEARCH, READ, READ_FILE)}
"""``struct open_how``: flags, mode, resolve."""
_syscall = ctypes.CDLL(None).syscall if sys.platform == "linux" else None
if _syscall is not None:
    _syscall.restype = ctypes.c_long
    _syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)


class LinkFound(OSError):
    """A component of a path is a symbolic link; ``position`` counts components from 0."""

    def __init__(self, name: str, position: int) -> None:
        super().__init__(f"{name!r} is a symbolic link, and stores follow none")
        self.position = position


def open_at_once(parts: Sequence[str], flags: int) -> int:
    """Return a descriptor of ``/part/part…``, or ``NO_DESCRIPTOR`` for any reason; ``flags`` are of ``_HOWS``."""
    if _syscall is None:
        return NO_DESCRIPTOR
    path = os.fsencode("/" + "/".join(parts))
    return int(_syscall(OPENAT2, AT_FDCWD, path, _HOWS[flags], _HOW_BYTES))


@contextmanager
def opened_folder(parts: Sequence[str], mode: int = SEARCH) -> Iterator[int]:
    """Yield a descriptor of the folder ``/part/part…``. Raises what ``opened_folders`` raises."""
    descriptor = open_at_once(parts, mode)
    if descriptor == NO_DESCRIPTOR:
        with opened_folders(parts, 1, mode) as folders:
            yield folders[0]
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_folders(
    parts: Sequence[str], count: int, mode: int = SEARCH, *, is_made: bool = False
) -> Iterator[list[int]]:
    """Yield descriptors of the last ``count`` folders on the way to ``/part/part…``, outermost first.

    ``is_made``: create folders that are missing. Raises LinkFound, NotADirectoryError if a component is a file,
    FileNotFoundError if one is missing or is deleted at the same moment, and other OSErrors.
    """
    descriptors = [os.open("/", mode if count > len(parts) else SEARCH)]
    try:
        for position, name in enumerate(parts):
            is_kept = position >= len(parts) - count
            descriptors.append(_open(name, position, descriptors[-1], mode if is_kept else SEARCH, is_made))
            if len(descriptors) > count:
                os.close(descriptors.pop(0))
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def is_link(name: str, folder: int) -> bool:
    """Return whether ``name`` in the folder of the descriptor ``folder`` is a symbolic link."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _open(name: str, position: int, parent: int, mode: int, is_made: bool) -> int:
    try:
        return os.open(name, mode, dir_fd=parent)
    except FileNotFoundError:
        if not is_made:
            raise
    except OSError:  # Linux says of a link here that it is no folder, other systems that there are too many links.
        if is_link(name, parent):
            raise LinkFound(name, position) from None
        raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return _open(name, position, parent, mode, False)
