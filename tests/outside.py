"""What lies outside of the places that tests and the product may write to: listed before and after a run, compared.

``python -m tests.outside list FILE`` writes a listing, ``python -m tests.outside compare FILE`` prints what has changed
since and exits with 1 if anything has.

A listing says only what a difference of can be attributed to the run between the two. Other programs work on the same
machine meanwhile, another checkout's tests among them, so folders in which programs keep their state are listed by
name (``NAMES``), or not at all (``IGNORED``); those that change only when somebody installs or configures something are
listed to the last file (``WHOLE``).

So a run that writes into a folder of somebody's home that was there before, and is not in ``WHOLE``, is not noticed.
That is accepted: editors, shells and other checkouts write there at any time, and walking a home folder takes 2 to 4 s
for each 200,000 files, twice a run.
"""

from __future__ import annotations

import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]

IGNORED = {
    "/dev/pts": "terminals are opened and closed",
    "/dev/shm": "shared memory of running programs",
    "/dev/mqueue": "message queues of running programs",
    "/proc": "the kernel's view of running programs",
    "/sys": "the kernel's view of devices",
    "/run": "sockets and locks of the system's services",
    "/tmp": "temporary files",
    "/var/tmp": "temporary files",
    "/lost+found": "the file system checker's",
    "/etc/adjtime": "written when the clock is set",
    "/etc/resolv.conf": "written when the network changes",
    "~/.npm": "npm's cache",
    "~/.cache/pip": "pip's cache",
}
NAMES = {
    "/": "what lies here belongs to the system's programs and to people: data that changes by itself",
    "/home": "other people",
    "/var": "logs, queues and caches",
    "/var/lib": "the state of services",
    "~": "people's own files",
    "~/.cache": "caches of programs",
    "~/.config": "programs save their state",
    "~/.local": "programs save their state",
    "~/.local/share": "programs save their state",
    "~/.local/state": "programs save their state",
}
"""Folders of which only the entries' names, types and modes are compared, and whose folders are not entered."""
WHOLE = (
    *("/bin", "/boot", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/usr"),
    *("~/.aws", "~/.bashrc", "~/.config/pip", "~/.docker", "~/.gitconfig", "~/.kube", "~/.netrc", "~/.npmrc"),
    *("~/.profile", "~/.pypirc", "~/.ssh"),
)
"""Files and folders that change only when somebody installs or configures something; so does this Python."""
PACKAGE_DATABASES = ("/var/lib/dpkg/status", "/var/lib/rpm", "/lib/apk/db/installed", "/var/lib/pacman/local")
BYTECODE = "__pycache__"
"""Any Python writes these folders when it first imports a module of the system."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is compared of one file: ``mode`` includes its type; the others are 0 where they are not compared."""

    mode: int
    device: int = 0
    owner: int = 0
    size: int = 0
    mtime_ns: int = 0

    def __str__(self) -> str:
        text = stat.filemode(self.mode)
        if self.is_device:
            return f"{text}, device {os.major(self.device)}:{os.minor(self.device)}"
        return (
            f"{text}, owner {self.owner}, {self.size} bytes, written at {self.mtime_ns} ns" if self.mtime_ns else text
        )

    @property
    def is_device(self) -> bool:
        """Whether it stands for a device."""
        return stat.S_ISCHR(self.mode) or stat.S_ISBLK(self.mode)


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries outside by path, and when packages were last installed or removed."""

    entries: Mapping[str, Entry]
    packages_ns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which folders are listed, and how. ``allowed`` are those that a run may write to."""

    devices: Path = Path("/dev")
    names: frozenset[str] = field(default_factory=lambda: _real_paths(NAMES))
    whole: frozenset[str] = field(default_factory=lambda: _real_paths((*WHOLE, sys.base_prefix)))
    allowed: frozenset[str] = field(default_factory=lambda: allowed_folders())


def allowed_folders() -> frozenset[str]:
    """Return the folders that are not listed: those a run may write to, and ``IGNORED``."""
    caches = (os.environ.get(name) for name in ("PIP_CACHE_DIR", "npm_config_cache", "LITHIFY_HOME"))
    # Other checkouts come and go beside this one.
    places = [*IGNORED, str(CHECKOUT), str(CHECKOUT.parent), tempfile.gettempdir(), *filter(None, caches)]
    return _real_paths(places) - _real_paths(NAMES)


def _real_paths(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(os.path.realpath(os.path.expanduser(path)) for path in paths)


def list_outside(scope: Scope | None = None) -> Listing:
    """Return what lies outside now. A folder that cannot be read, or vanishes meanwhile, has no entries."""
    scope = scope or Scope()
    entries: dict[str, Entry] = {}
    for path, found in _walk(str(scope.devices), scope.allowed):
        entries[path] = Entry(mode=found.st_mode, device=found.st_rdev)
    for folder in scope.names:
        for path, found in _entries(folder, scope.allowed | {str(scope.devices)}):
            entries[path] = Entry(mode=found.st_mode)
    for folder in scope.whole:
        if not folder.startswith(tuple(f"{other}/" for other in scope.whole)):
            for path, found in _walk(folder, scope.allowed):
                entries[path] = _whole_entry(found)
    databases = (Path(path) for path in PACKAGE_DATABASES)
    return Listing(entries, tuple(path.stat().st_mtime_ns for path in databases if path.exists()))


def differences(before: Listing, after: Listing, scope: Scope | None = None) -> list[str]:
    """Return a line for each path that was added, removed or changed.

    If packages were installed or removed in between, the folders listed whole are left out: their files are the
    package manager's. A device that was added is the kernel's.
    """
    scope = scope or Scope()
    foreign = tuple(f"{folder}/" for folder in scope.whole) if before.packages_ns != after.packages_ns else ()
    lines = []
    for path in sorted(before.entries.keys() | after.entries.keys()):
        was, now = before.entries.get(path), after.entries.get(path)
        if was == now or path.startswith(foreign):
            continue
        if was is None and now is not None and now.is_device:
            continue
        lines.append(f"{path}: was {was or 'not there'}, is {now or 'not there'}")
    return lines


def _whole_entry(found: os.stat_result) -> Entry:
    if stat.S_ISDIR(found.st_mode):  # its time changes with files that came and went, as locks do
        return Entry(mode=found.st_mode, owner=found.st_uid)
    return Entry(
        mode=found.st_mode,
        device=found.st_rdev,
        owner=found.st_uid,
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
    )


def _entries(folder: str, allowed: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the entries of one folder, as they are and not as links point."""
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if entry.path not in allowed and entry.name != BYTECODE:
                    try:
                        yield entry.path, entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
    except OSError:
        return


def _walk(folder: str, allowed: frozenset[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield a file, or every entry below a folder and on its file system."""
    try:
        first = os.lstat(folder)
    except OSError:
        return
    device, waiting = first.st_dev, [folder]
    if not stat.S_ISDIR(first.st_mode):
        yield folder, first
        return
    while waiting:
        for path, found in _entries(waiting.pop(), allowed):
            yield path, found
            if stat.S_ISDIR(found.st_mode) and found.st_dev == device:
                waiting.append(path)


def main(arguments: list[str]) -> int:
    """Write a listing, or compare the machine with one; return the exit status."""
    match arguments:
        case ["list", file]:
            Path(file).write_bytes(pickle.dumps(list_outside()))
            return 0
        case ["compare", file]:
            before = pickle.loads(Path(file).read_bytes())
            after = list_outside()
            if before.packages_ns != after.packages_ns:
                print("packages were installed meanwhile: the system's folders are not compared")
            changed = differences(before, after)
            print("\n".join([f"outside of the checkout: {len(changed)} of {len(before.entries)} changed", *changed]))
            return 1 if changed else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
