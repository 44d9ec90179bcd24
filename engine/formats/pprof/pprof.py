"""Decoding of pprof profiles: gunzip with a limit against decompression bombs, then parse.

The compiled parser reads about a byte per nanosecond, the pure-Python parser some MB/s. ``LITHIFY_PURE=1``
selects pure Python.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.errors import BadProfile, LimitExceeded, Truncated
from engine.core.kernels import load_kernel
from engine.formats.pprof.pprof_model import ENTRIES_MAX, SIZE_MAX, Profile

GZIP_MAGIC = b"\x1f\x8b"

RATIO_MAX = 200
"""Uncompressed bytes per compressed byte beyond which an input is taken for a bomb. Real profiles stay under 20."""

DEFLATE_RATIO_MAX = 1032
"""Uncompressed bytes per compressed byte that deflate reaches at most."""

RATIO_FREE_SIZE = 1 << 20
"""Uncompressed bytes of one request that are allowed at any ratio: small repetitive profiles compress very well."""

MEMBERS_MAX = 64
"""Maximum number of gzip members of an input: each costs a copy of the rest, and real senders write one."""

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_CHUNK = 1 << 18

if TYPE_CHECKING:
    from engine.formats.pprof._pprof_py import parse_message
else:
    (parse_message,) = load_kernel("engine.formats.pprof._pprof", "parse_message")


def parse_profile(data: bytes, *, size_max: int = SIZE_MAX, entries_max: int = ENTRIES_MAX) -> Profile:
    """Return a pprof profile, gzipped or not, of at most ``size_max`` uncompressed bytes.

    Raises LimitExceeded (size, entries, compression ratio), Truncated, or BadProfile (not pprof, no sample types).
    Offsets of errors are those in the uncompressed message.
    """
    profile = parse_message(uncompressed(data, size_max=size_max), entries_max)
    if not profile.sample_types:
        raise BadProfile("pprof", -1, "the profile has no sample types; is this a pprof profile?")
    return profile


@dataclass(slots=True)
class UnpackBudget:
    """What the profiles of one request share while they are unpacked.

    ``unpacked_bytes`` counts every profile's uncompressed bytes, also of profiles that are refused. ``free_bytes`` is
    what is left of RATIO_FREE_SIZE, ``further_members`` how many gzip members there may be beyond one per profile.
    """

    unpacked_bytes: int = 0
    free_bytes: int = RATIO_FREE_SIZE
    further_members: int = MEMBERS_MAX - 1


def uncompressed(data: bytes, *, size_max: int = SIZE_MAX, budget: UnpackBudget | None = None) -> bytes:
    """Return the message of a gzipped input (of one or more members), or the input itself if it is not gzipped.

    ``budget`` is that of the request the input is a part of, None if it is alone.
    """
    budget = budget or UnpackBudget()
    if not data.startswith(GZIP_MAGIC):
        budget.unpacked_bytes += len(data)
        if len(data) > size_max:
            raise LimitExceeded("pprof", -1, f"the profile has {len(data)} bytes, the limit is {size_max}")
        return data
    before = budget.unpacked_bytes
    try:
        return _unzipped(data, min(size_max, max(budget.free_bytes, RATIO_MAX * len(data))), budget)
    finally:
        size = budget.unpacked_bytes - before
        if size > RATIO_MAX * len(data):
            budget.free_bytes = max(0, budget.free_bytes - size)


def _unzipped(data: bytes, limit: int, budget: UnpackBudget) -> bytes:
    parts: list[bytes] = []
    total, left = 0, data
    while left:
        if left is not data:
            if not budget.further_members:
                raise LimitExceeded("pprof", -1, f"the gzip data has more than {MEMBERS_MAX} members")
            budget.further_members -= 1
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        while not inflater.eof:
            part = _inflate(inflater, left, limit + 1 - total, budget)
            total += len(part)
            if total > limit:
                reason = (
                    f"the profile unzips to more than {limit} bytes of its budget (size limit or ratio {RATIO_MAX})"
                )
                raise LimitExceeded("pprof", -1, reason)
            if not (part or inflater.eof):
                raise Truncated("pprof", -1, "the gzip data ends early")
            parts.append(part)
            left = inflater.unconsumed_tail
        left = inflater.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _inflate(inflater: zlib._Decompress, data: bytes, most: int, budget: UnpackBudget) -> bytes:
    """Return at most ``most`` bytes and at most a chunk. zlib does not tell what damaged data came to: a chunk."""
    size = min(most, _CHUNK)
    try:
        part = inflater.decompress(data, size)
    except zlib.error as error:
        budget.unpacked_bytes += min(size, DEFLATE_RATIO_MAX * len(data))
        raise BadProfile("pprof", -1, f"the gzip data is damaged: {error}") from error
    budget.unpacked_bytes += len(part)
    return part
