"""Faults of a machine that a test switches while processes run: small C libraries, preloaded, and the file each reads.

``environments`` joins what several of them need in one process.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent


class _Preloaded:
    """A library and the number that it shares with this process. Anybody may read them: servers run as other users."""

    def __init__(self, name: str, variable: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        library, self._file = folder / f"{name}.so", folder / name
        source = SOURCES / f"{name}.c"
        command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(source)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        self._file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), variable: str(self._file)}

    @contextmanager
    def _set(self, number: int) -> Iterator[None]:
        self._write(number)
        try:
            yield
        finally:
            self._write(0)

    def _write(self, number: int) -> None:
        """In place: the processes have mapped the file."""
        with self._file.open("r+b") as file:
            file.write(number.to_bytes(8, "little", signed=True))


class WallClock(_Preloaded):
    """Processes started with ``environment`` have this clock. It is the machine's until it is ``stepped``."""

    def __init__(self, folder: Path) -> None:
        super().__init__("wall_clock", "WALL_CLOCK_STEP", folder)

    def stepped(self, seconds: int) -> AbstractContextManager[None]:
        """Set the clock ahead, or back where negative, for the length of a ``with``."""
        return self._set(seconds)


class Disk(_Preloaded):
    """The disk below ``disk_folder`` for processes started with ``environment``."""

    def __init__(self, folder: Path, disk_folder: Path) -> None:
        super().__init__("full_disk", "FULL_DISK_SWITCH", folder)
        self.environment["FULL_DISK_FOLDER"] = f"{disk_folder}/"

    def full(self) -> AbstractContextManager[None]:
        """Let the disk have no room for the length of a ``with``."""
        return self._set(1)


@contextmanager
def preloading(fault: _Preloaded) -> Iterator[None]:
    """Let the programs that are started inside have this fault, where their environment cannot be given."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in fault.environment.items():
            patch.setenv(name, value)
        yield


def environments(*faults: _Preloaded) -> dict[str, str]:
    """Return the environment of a process with all of these."""
    joined = {name: value for fault in faults for name, value in fault.environment.items()}
    return joined | {"LD_PRELOAD": ":".join(fault.environment["LD_PRELOAD"] for fault in faults)}
