"""Deterministic ids of result blocks: equal sources give equal ids in every process and language.

The time is that of the first source. The entropy comes from the additive lagged Fibonacci generator of Go's math/rand,
seeded with a hash of the sources. Go ships the generator's 607 initial words as a table; here they are computed by
advancing the recurrence ``s[k] = s[k-607] + s[k-273]`` by 7.8e12 steps (a power of x modulo a polynomial).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from engine.core import ulids
from engine.core.errors import MergeRefused

WORDS = 607
TAP = 273
FEED_START = WORDS - TAP
TABLE_STEPS = 7_800_000_000_000
TABLE_FIRST_WORD = -4181792142133755926
"""Known first word of the table: guards against ids from a miscomputed table."""

_MERSENNE = (1 << 31) - 1
_LOW_63 = (1 << 63) - 1

Words = npt.NDArray[np.uint64]


def result_ids(sources: Sequence[tuple[str, int]], count: int, fence: int | None) -> list[str]:
    """Return ``count`` ids for the results of merging ``sources`` (id, compaction level); their order matters.

    ``fence`` is the fencing token of the job. It is part of the seed, so that a worker that lost its lease cannot
    overwrite the results of its successor. None gives the ids that other implementations derive from the sources alone.
    Raises MergeRefused if there are no sources.
    """
    if not sources:
        raise MergeRefused("a merge without sources has no result ids")
    time_ms = ulids.time_ms(sources[0][0])
    entropy = _entropy(_seed(sources, fence))
    return [ulids.make(time_ms, bytes(next(entropy) for _ in range(ulids.ENTROPY_BYTES))) for _ in range(count)]


def _seed(sources: Sequence[tuple[str, int]], fence: int | None) -> int:
    hashed = xxhash.xxh64()
    for block_id, level in sources:
        hashed.update(block_id.encode("ascii") + level.to_bytes(4, "big"))
    if fence is not None:
        hashed.update(fence.to_bytes(8, "big"))
    unsigned = int(hashed.intdigest())
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


def _entropy(seed: int) -> Iterator[int]:
    """Yield the generator's byte stream: seven bytes of each 63-bit draw, least significant first.

    Words are computed lazily: most jobs need two draws, which depend on four of the 607 words.
    """
    words: dict[int, int] = {}
    table, tap, feed = start_table(), 0, FEED_START
    while True:
        tap, feed = (tap - 1) % WORDS, (feed - 1) % WORDS
        for position in (tap, feed):
            if position not in words:
                words[position] = _seeded_word(seed, position, 40, 20) ^ table[position] & _LOW_63
        words[feed] = (words[feed] + words[tap]) & _LOW_63
        yield from words[feed].to_bytes(8, "little")[:7]


def _seeded_word(seed: int, position: int, first_shift: int, second_shift: int) -> int:
    """Return the 63-bit word that three Park-Miller draws give for a seed and a position."""
    draw = seed % _MERSENNE or 89482311
    first, second, third = (draw * power % _MERSENNE for power in _powers()[position])
    return (first << first_shift ^ second << second_shift ^ third) & _LOW_63


@functools.cache
def _powers() -> tuple[tuple[int, int, int], ...]:
    """Return the multipliers of the three draws of each word; the generator discards its first 20 draws."""
    powers, power = [], pow(48271, 20, _MERSENNE)
    for _ in range(3 * WORDS):
        power = power * 48271 % _MERSENNE
        powers.append(power)
    return tuple(zip(powers[::3], powers[1::3], powers[2::3], strict=True))


@functools.cache
def start_table() -> tuple[int, ...]:
    """Return the generator's 607 initial words (unsigned 64 bit), computed once per process."""
    # Position p of the array holds the value of the latest step t with t = 334 - p (mod 607).
    positions = [(FEED_START - step) % WORDS for step in range(1 - WORDS, 1)]
    window = np.array([_seeded_word(1, position, 20, 10) for position in positions], dtype=np.uint64)
    latest = _jump(window, TABLE_STEPS)
    table = [0] * WORDS
    for step, value in enumerate(latest.tolist(), start=TABLE_STEPS - WORDS + 1):
        table[(FEED_START - step) % WORDS] = value
    assert table[0] == TABLE_FIRST_WORD % (1 << 64), "the generator's initial table is wrong"
    return tuple(table)


def _jump(window: Words, steps: int) -> Words:
    """Return the window of the last 607 values after ``steps`` more values of the recurrence."""
    ahead = list(window)
    with np.errstate(over="ignore"):
        for k in range(WORDS, 2 * WORDS - 1):
            ahead.append(ahead[k - WORDS] + ahead[k - TAP])
        coefficients = _power_of_x(steps)
        extended = np.array(ahead, dtype=np.uint64)
        return np.array([np.dot(coefficients, extended[i : i + WORDS]) for i in range(WORDS)], dtype=np.uint64)


def _power_of_x(exponent: int) -> Words:
    """Return x^exponent modulo x^607 - x^334 - 1, coefficients modulo 2^64, lowest power first."""
    power = np.zeros(WORDS, dtype=np.uint64)
    power[0] = 1
    for bit in bin(exponent)[2:]:
        product = np.convolve(power, power)
        if bit == "1":
            product = np.concatenate((np.zeros(1, dtype=np.uint64), product))
        power = _reduced(product)
    return power


def _reduced(product: Words) -> Words:
    for k in range(len(product) - 1, WORDS - 1, -1):
        product[k - WORDS] += product[k]
        product[k - TAP] += product[k]
    return product[:WORDS]
