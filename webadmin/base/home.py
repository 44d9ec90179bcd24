"""The data folder of a Lithify installation: the default database, objects, secrets."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

SECRET_BYTES = 48
FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS = 0o077
"""Permission bits of group and others."""


def private_folder(folder: Path) -> Path:
    """Return the folder with mode 0700, created with its parents if missing, so that no other user can read it.

    A folder of another user, or a shared one like ``/tmp``, keeps its mode.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    status = folder.stat()
    is_ours = status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX
    if is_ours and stat.S_IMODE(status.st_mode) & OTHERS:
        folder.chmod(FOLDER_MODE)
    return folder


def private_file(path: Path) -> Path:
    """Return the path of a file that only its owner may read, created empty if missing.

    SQLite's additional files get the same mode.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & OTHERS:
            os.fchmod(descriptor, FILE_MODE)
    finally:
        os.close(descriptor)
    return path


def kept_secret(path: Path) -> str:
    """Return the secret in this file; if missing, it is generated, readable by its owner only.

    The file is linked to its name when it is complete, and only if the name is free: of two processes that start
    together one wins, and both return the same secret.
    """
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(SECRET_BYTES))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()
