"""Pure Python reference implementation of the hashes of rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

Words = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def _mixed(words: Words) -> Words:
    """Return the SplitMix64 finalizer of each word."""
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * _FIRST
        words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def add_words(hashes: Words, words: Words) -> None:
    """Mix a word into the hash of each row, in place."""
    with np.errstate(over="ignore"):
        hashes[:] = _mixed(hashes * np.uint64(3) + _STEP + words)


def add_bytes(hashes: Words, data: npt.NDArray[np.uint8], offsets: Offsets) -> None:
    """Mix the XXH64 of ``data[offsets[i]:offsets[i + 1]]`` into the hash of row i, in place."""
    starts, view = offsets.tolist(), data.tobytes()
    digests = [xxhash.xxh64_intdigest(view[starts[row] : starts[row + 1]]) for row in range(len(hashes))]
    add_words(hashes, np.array(digests, np.uint64))


def add_lists(hashes: Words, elements: Words, offsets: Offsets) -> None:
    """Mix the elements ``offsets[i]`` up to ``offsets[i + 1]``, and their number, into row i's hash."""
    for row in range(len(hashes)):
        one = hashes[row : row + 1]
        start, end = int(offsets[row]), int(offsets[row + 1])
        for place in range(start, end):
            add_words(one, elements[place : place + 1])
        add_words(one, np.array([end - start], np.uint64))
