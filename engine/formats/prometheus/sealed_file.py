"""A file that is written from front to back and, unless it is only of passing use, on the disk when it is closed."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

BUFFER_BYTES = 1 << 20


class SealedFile:
    """Appends to a new file; ``position`` is how much there is. Closing makes it last, leaving by an error does not.

    ``is_lasting`` False never waits for the disk.
    """

    def __init__(self, path: Path, *, is_lasting: bool = True) -> None:
        self.path = path
        self.position = 0
        self._is_lasting = is_lasting
        self._file = path.open("xb", buffering=BUFFER_BYTES)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        self._file.write(data)
        self.position += len(data)

    def pad(self, alignment: int) -> None:
        """Append zeros up to the next multiple of ``alignment``."""
        self.write(bytes(-self.position % alignment))

    def patch(self, offset: int, data: bytes) -> None:
        """Replace bytes that were written before."""
        self._file.seek(offset)
        self._file.write(data)
        self._file.seek(self.position)

    def flush(self) -> None:
        """Make what was written visible to readers of the file."""
        self._file.flush()

    def close(self) -> None:
        """Write what is left, to the disk if the file is to last."""
        if not self._file.closed:
            self._file.flush()
            if self._is_lasting:
                os.fsync(self._file.fileno())
            self._file.close()

    def discard(self) -> None:
        """Close without waiting for the disk."""
        self._file.close()

    def __enter__(self) -> SealedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
