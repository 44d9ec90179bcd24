"""Constants of the range file format, the rules that split files, and the types of the block kernels.

The format is in ``docs/reference/formats/catalog-ranges.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

MAGIC = b"LCAT"
VERSION = 1
HEADER_BYTES = 8
FOOTER_BYTES = 32
BLOCK_BYTES = 32 << 10
"""A block ends when it reaches this size. Part of the format: the ids of files depend on it."""


class Kind:
    """The byte that identifies the contents of a file."""

    RANGE = b"R"
    METARANGE = b"M"
    STAGED = b"S"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRules:
    """The keys at which a sequence of entries is split into files: selected by hash, within size limits.

    Sizes are bytes of keys, identities and payloads. A file ends after an entry if it has at least ``bytes_max``, or if
    XXH64 of the key is divisible by ``every`` and it has at least ``bytes_min``, or if the hash is divisible by
    ``every * borders_every``. The last are *borders*, which do not depend on the entries before them.
    """

    bytes_min: int = 512 << 10
    bytes_max: int = 4 << 20
    every: int = 8192
    borders_every: int = 16

    @property
    def border(self) -> int:
        return self.every * self.borders_every


class BlockSink(Protocol):
    """Receives the blocks of one or more files in order."""

    def block(self, data: bytes, rows: int, size: int, first_key: bytes, last_key: bytes) -> None:
        """Append a block to the current file; ``size`` is the bytes of its keys, identities and payloads."""

    def cut(self) -> None:
        """End the current file, which has at least one block."""


@dataclass(slots=True)
class MergeCounts:
    """The numbers of rows that a merge read and wrote; ``bytes_changed`` is the size of added and changed entries."""

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
