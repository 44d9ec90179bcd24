"""Keys of consecutive rows as arrays, shared by both implementations of ``row_order``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HEAD_BYTES = 8
"""Bytes of a key that are compared as one number."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Row i's key is ``data[offsets[i]:offsets[i + 1]]``; ``heads[i]`` holds its first eight bytes as a number.

    A head is big-endian and padded with zeros. For keys of exactly eight bytes ``data`` and ``offsets`` are empty.
    Raises ValueError for invalid offsets: comparisons rely on this check.
    """

    heads: npt.NDArray[np.uint64]
    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        offsets = self.offsets
        if len(offsets) and (
            len(offsets) != len(self.heads) + 1
            or not 0 <= offsets[0] <= offsets[-1] <= len(self.data)
            or bool((offsets[1:] < offsets[:-1]).any())
        ):
            raise ValueError("the offsets of keys do not match their rows and bytes")

    def __len__(self) -> int:
        return len(self.heads)

    def key(self, row: int) -> bytes:
        """Return one row's key."""
        if not len(self.offsets):
            return int(self.heads[row]).to_bytes(HEAD_BYTES, "big")
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One column's part of the keys: row i's is ``data[offsets[i]:offsets[i + 1]]``, or nothing if it is null.

    ``valid`` is None for a column that is never null in the whole merge; otherwise a byte 1 precedes a value and a byte
    0 stands for a null. ``escaped``: values have no fixed length and are written so that none is a prefix of another: 0
    becomes 0 255, and 0 0 ends the value.
    """

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    valid: npt.NDArray[np.uint8] | None
    escaped: bool


def fixed_offsets(rows: int, width: int) -> npt.NDArray[np.int64]:
    """Return the offsets of values of one width."""
    return np.arange(rows + 1, dtype=np.int64) * width


def heads_of(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return the heads of keys."""
    lengths = np.diff(offsets)
    heads = np.zeros(len(lengths), np.uint64)
    padded = np.concatenate((data, np.zeros(HEAD_BYTES, np.uint8)))
    for place in range(HEAD_BYTES):
        here = np.where(lengths > place, padded[offsets[:-1] + place], 0).astype(np.uint64)
        heads |= here << np.uint64(8 * (HEAD_BYTES - 1 - place))
    return heads
