"""The numbers of the catalog's file format (``docs/reference/formats/catalog-ranges.md``), and when files are cut."""

from __future__ import annotations

from dataclasses import dataclass

MAGIC = b"LCAT"
VERSION = 1
HEADER_BYTES = 8
FOOTER_BYTES = 32
BLOCK_BYTES = 32 << 10
"""A block is closed as soon as it is at least this long. Part of the format: ids of files rest on it."""


class Kind:
    """The byte that says what a file holds."""

    RANGE = b"R"
    METARANGE = b"M"
    STAGED = b"S"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRules:
    """Where a sequence of entries is cut into files: after keys chosen by their hash, inside bounds of size.

    Sizes are bytes of keys, identities and payloads. After an entry a file is closed if it holds at least
    ``bytes_max``, or if XXH64 of the key is divisible by ``every`` and it holds at least ``bytes_min``, or if it is
    divisible by ``every * borders_every``: such *borders* never depend on what was written before them.
    """

    bytes_min: int = 512 << 10
    bytes_max: int = 4 << 20
    every: int = 8192
    borders_every: int = 16

    @property
    def border(self) -> int:
        return self.every * self.borders_every
