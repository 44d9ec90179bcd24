"""Block ids of simulated objects: valid ULIDs from a time and a sequence number, without randomness."""

from __future__ import annotations

from functools import lru_cache

import xxhash

from engine.core.ulids import ALPHABET

_PAIRS = tuple(high + low for high in ALPHABET for low in ALPHABET)
_MASK = (1 << 64) - 1


def segment_id(time_ms: int, number: int) -> str:
    """Return the ULID of the segment with this number, created at this time."""
    return f"{_time_part(time_ms)}{number:016d}"


def result_id(first_source: str, *, job: str, token: int, tenant: str) -> str:
    """Return the ULID of a merge result: the time of its first source, and entropy that depends on the token."""
    entropy = xxhash.xxh64_intdigest(f"{job} {token} {tenant}".encode())
    return f"{first_source[:10]}{entropy % 10**16:016d}"


def item_digest(segment: str, tenant: str, service: str = "") -> int:
    """Return a 64-bit digest of a service's data in a segment; sums of digests represent sets of data."""
    return xxhash.xxh64_intdigest((segment + tenant + service).encode())


def added(left: int, right: int) -> int:
    """Return the sum of two digests modulo 2**64."""
    return left + right & _MASK


def _time_part(time_ms: int) -> str:
    return _seconds_part(time_ms >> 10) + _PAIRS[time_ms & 1023]


@lru_cache(maxsize=16)
def _seconds_part(time_s: int) -> str:
    """Return the first eight characters, which are equal for about a second."""
    return "".join([_PAIRS[time_s >> shift & 1023] for shift in (30, 20, 10, 0)])
