"""Name and scratch folder of a node: held by one process at a time, emptied at its start.

The queue of the node has the same name, so two nodes must never share it. The process holds a lock on a file in the
folder of the node; the kernel releases it however the process ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
from pathlib import Path

from engine.settings.base import BadSetting
from tasks.errors import NodeNameTaken

NODES_PER_HOME_MAX = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class NodeIdentity:
    """A claimed name with its folder. ``release`` or the end of the process frees the name."""

    def __init__(self, name: str, folder: Path, lock: int) -> None:
        self.name = name
        self.scratch = folder / "scratch"
        self._lock = lock

    def wipe(self) -> None:
        """Delete the files of earlier runs; the scratch folder is empty afterwards."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True, exist_ok=True)

    def release(self) -> None:
        """Delete the scratch folder and free the name; idempotent."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def claim_name(home: Path, wanted: str = "") -> NodeIdentity:
    """Claim ``wanted``, or the first free of host, host-2, host-3 …

    Raises NodeNameTaken if running nodes hold the wanted name (or every numbered one).
    """
    base = wanted or socket.gethostname() or "node"
    if not _NAME.fullmatch(base):
        raise BadSetting(f"NODE_NAME is {base!r}: expected letters, digits, dots, dashes, at most 100")
    for number in range(1, 2 if wanted else NODES_PER_HOME_MAX + 1):
        name = base if number == 1 else f"{base}-{number}"
        folder = home / "nodes" / name
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        identity = NodeIdentity(name, folder, lock)
        identity.wipe()
        return identity
    raise NodeNameTaken(f"a running node in {home} is called {base}; choose another NODE_NAME")
