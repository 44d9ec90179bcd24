"""What the kernels of the catalog and their callers say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class BlockSink(Protocol):
    """Takes the blocks of files in order."""

    def block(self, data: bytes, rows: int, size: int, first_key: bytes, last_key: bytes) -> None:
        """Take a block of the open file; ``size`` is the bytes of its keys, identities and payloads."""

    def cut(self) -> None:
        """Close the open file; it has at least one block."""


@dataclass(slots=True)
class MergeCounts:
    """What a merge read and did, in rows; ``bytes_changed`` are those of added and changed entries."""

    rows_read: int = 0
    kept: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    bytes_changed: int = 0

    def __add__(self, other: MergeCounts) -> MergeCounts:
        return MergeCounts(
            self.rows_read + other.rows_read,
            self.kept + other.kept,
            self.added + other.added,
            self.changed + other.changed,
            self.removed + other.removed,
            self.bytes_changed + other.bytes_changed,
        )

    @property
    def is_without_change(self) -> bool:
        return not (self.added or self.changed or self.removed)
