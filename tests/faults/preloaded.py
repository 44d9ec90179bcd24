"""Faults of a machine that tests switch on while processes run: preloaded C libraries and the file that each reads.

``environments`` merges the variables of several of them for one process.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent


class _Preloaded:
    """A library and the number that it shares with this process.

    The file is world-readable: servers run as other users.
    """

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
        """Write in place, because the processes have mapped the file."""
        with self._file.open("r+b") as file:
            file.write(number.to_bytes(8, "little", signed=True))


class WallClock(_Preloaded):
    """A clock for processes started with ``environment``; equal to the machine's until ``stepped``."""

    def __init__(self, folder: Path) -> None:
        super().__init__("wall_clock", "WALL_CLOCK_STEP", folder)

    def stepped(self, seconds: int) -> AbstractContextManager[None]:
        """Step the clock forward, or back if negative, within a ``with``."""
        return self._set(seconds)


class Disk(_Preloaded):
    """The disk below ``disk_folder`` for processes started with ``environment``."""

    def __init__(self, folder: Path, disk_folder: Path) -> None:
        super().__init__("full_disk", "FULL_DISK_SWITCH", folder)
        self.environment["FULL_DISK_FOLDER"] = f"{disk_folder}/"

    def full(self) -> AbstractContextManager[None]:
        """Make the disk full within a ``with``."""
        return self._set(1)


@contextmanager
def preloading(fault: _Preloaded) -> Iterator[None]:
    """Apply the fault to programs started inside whose environment cannot be passed."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in fault.environment.items():
            patch.setenv(name, value)
        yield


def environments(*faults: _Preloaded) -> dict[str, str]:
    """Return the environment of a process with all of these faults."""
    joined = {name: value for fault in faults for name, value in fault.environment.items()}
    return joined | {"LD_PRELOAD": ":".join(fault.environment["LD_PRELOAD"] for fault in faults)}
