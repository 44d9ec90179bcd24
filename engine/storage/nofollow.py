"""Opening of files and folders by path without following a symbolic link in any component.

Tenants can write below some stores, so any name there can become a link at any time. Each component is opened relative
to the descriptor of its parent with ``O_NOFOLLOW``, so that the checked file is the opened one. Folders on the path
need only the search permission. ``openat2`` of Linux does the same in one call; where it fails or does not exist, the
component-wise walk determines the component and the reason (decision 0055).
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
"""Mode that suffices to open entries of a folder. Systems without ``O_PATH`` need the read permission as well."""
READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Mode to list and sync a folder."""
READ_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Mode to read a file. Does not block on a FIFO: check the type of the file before reading."""

OPENAT2 = 437
"""Number of the system call on x86-64 and ARM; glibc has no wrapper for it."""
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
    """A component of a path is a symbolic link; ``position`` is its index, counted from 0."""

    def __init__(self, name: str, position: int) -> None:
        super().__init__(f"{name!r} is a symbolic link, which stores do not follow")
        self.position = position


def open_path(parts: Sequence[str], flags: int) -> int:
    """Return a descriptor of ``/part/part…``, or ``NO_DESCRIPTOR`` on any error; ``flags`` is a key of ``_HOWS``."""
    if _syscall is None:
        return NO_DESCRIPTOR
    path = os.fsencode("/" + "/".join(parts))
    return int(_syscall(OPENAT2, AT_FDCWD, path, _HOWS[flags], _HOW_BYTES))


@contextmanager
def opened_folder(parts: Sequence[str], mode: int = SEARCH) -> Iterator[int]:
    """Yield a descriptor of the folder ``/part/part…``; raises the errors of ``opened_folders``."""
    descriptor = open_path(parts, mode)
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
    parts: Sequence[str], count: int, mode: int = SEARCH, *, creates_missing: bool = False
) -> Iterator[list[int]]:
    """Yield descriptors of the last ``count`` folders on the path ``/part/part…``, outermost first.

    Missing folders are created if ``creates_missing`` is true. Raises LinkFound, NotADirectoryError if a component is a
    file, FileNotFoundError if one is missing or was deleted concurrently, and other OSErrors.
    """
    descriptors = [os.open("/", mode if count > len(parts) else SEARCH)]
    try:
        for position, name in enumerate(parts):
            is_kept = position >= len(parts) - count
            descriptors.append(_open(name, position, descriptors[-1], mode if is_kept else SEARCH, creates_missing))
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


def _open(name: str, position: int, parent: int, mode: int, creates_missing: bool) -> int:
    try:
        return os.open(name, mode, dir_fd=parent)
    except FileNotFoundError:
        if not creates_missing:
            raise
    except OSError:  # For a link, Linux reports ENOTDIR, other systems ELOOP.
        if is_link(name, parent):
            raise LinkFound(name, position) from None
        raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return _open(name, position, parent, mode, False)
